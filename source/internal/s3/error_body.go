package s3

import (
	"bytes"
	"encoding/xml"
	"io"
	"strings"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"lcache/source/internal/object"
)

// errorBody returns the error that an answer with the status 200 has in the place of an object; nil: it is the object. Some services begin an answer before they know whether they can give
// it. An object has an ETag, and such an answer has none. What was read of an object stands in the body again.
func (s *Store) errorBody(out *s3.GetObjectOutput) error {
	raw, ok := awsmiddleware.GetRawResponse(out.ResultMetadata).(*smithyhttp.Response)
	if !ok || out.ETag != nil || !strings.Contains(strings.ToLower(raw.Header.Get("Content-Type")), "xml") {
		return nil
	}
	head, err := io.ReadAll(io.LimitReader(out.Body, mostErrorBody))
	if err != nil {
		return busy(object.Passing, raw.Header, "the answer of %s can't be read: %s", s.set.where(), innermost(err))
	}
	var said struct {
		XMLName xml.Name `xml:"Error"`
		Code    string   `xml:"Code"`
	}
	if xml.Unmarshal(head, &said) != nil || said.Code == "" {
		out.Body = readCloser{io.MultiReader(bytes.NewReader(head), out.Body), out.Body}
		return nil
	}
	trouble := object.Passing
	if strings.Contains(said.Code, "SlowDown") {
		trouble = object.Slow
	}
	return busy(trouble, raw.Header, "%s answers 200 with an error (%s)", s.set.where(), clean(said.Code))
}

type readCloser struct {
	io.Reader
	io.Closer
}
