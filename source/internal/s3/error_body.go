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

// errorBody returns the error if an answer with status 200 contains an error instead of an object; nil: it is the
// object. Some services begin to answer before they know whether they can deliver the object. An object has an ETag;
// such an error has none. Bytes that errorBody has read of an object are put back into the body.
func (s *Store) errorBody(out *s3.GetObjectOutput) error {
	raw, ok := awsmiddleware.GetRawResponse(out.ResultMetadata).(*smithyhttp.Response)
	if !ok || out.ETag != nil || !strings.Contains(strings.ToLower(raw.Header.Get("Content-Type")), "xml") {
		return nil
	}
	head, err := io.ReadAll(io.LimitReader(out.Body, mostErrorBody))
	if err != nil {
		return busy(object.Transient, raw.Header, "the answer of %s can't be read: %s", s.set.where(), innermost(err))
	}
	var said struct {
		XMLName xml.Name `xml:"Error"`
		Code    string   `xml:"Code"`
	}
	if xml.Unmarshal(head, &said) != nil || said.Code == "" {
		out.Body = readCloser{io.MultiReader(bytes.NewReader(head), out.Body), out.Body}
		return nil
	}
	trouble := object.Transient
	if strings.Contains(said.Code, "SlowDown") {
		trouble = object.Slow
	}
	return busy(trouble, raw.Header, "%s answers 200 with an error (%s)", s.set.where(), clean(said.Code))
}

type readCloser struct {
	io.Reader
	io.Closer
}
