package s3

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"

	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Limits of a service's answers. The SDK has none: it reads a whole error, and a whole page of a listing, into
// memory.
const (
	mostErrorBody   = 4 << 10  // bytes of an error; real ones have some hundred
	mostPage        = 16 << 20 // bytes of a page of a listing
	mostPageKeys    = 1000     // keys and folders in a page
	mostPageTags    = 64 * mostPageKeys
	mostKey         = 1 << 10 // bytes of a key
	mostToken       = 8 << 10 // bytes of a continuation token, which may contain a key that is encoded twice
	mostEmptyPages  = 500     // pages in a row without a key: services return a few if many objects were removed
	mostKeys        = math.MaxUint32 - 1
	mostCredentials = 1 << 20 // bytes of an answer with credentials
)

// A boundError means that an answer is longer than its limit.
type boundError struct {
	text string
	code string // of S3, if the answer is an error that begins with a code
}

func (e *boundError) Error() string { return e.text }

// bounded is a transport below the SDK that limits the bodies of errors and of listings. Readers of objects limit
// those themselves.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	switch {
	case err != nil:
	case answer.StatusCode >= 300:
		answer.Body = &boundedError{boundedBody: boundedBody{ReadCloser: answer.Body, left: mostErrorBody}}
	case strings.Contains(r.URL.RawQuery, "list-type="):
		answer.Body = &boundedPage{boundedBody{ReadCloser: answer.Body, left: mostPage}, mostPageTags}
	}
	return answer, err
}

// boundCredentials limits the answers of services that issue credentials: STS, SSO, and the metadata of an instance
// or a container.
func boundCredentials(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("BoundedAnswer", func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (out middleware.DeserializeOutput, m middleware.Metadata, err error) {
		out, m, err = next.HandleDeserialize(ctx, in)
		if raw, ok := out.RawResponse.(*smithyhttp.Response); ok && raw.Response != nil && raw.Body != nil {
			raw.Body = &boundedCredentials{boundedBody{ReadCloser: raw.Body, left: mostCredentials}}
		}
		return out, m, err
	}), middleware.After)
}

// errOver means that a body is longer than its limit.
var errOver = errors.New("the answer is too long")

// A boundedBody returns an error instead of the first byte beyond its limit. Closing it then also closes the
// connection, because the rest was not read.
type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if b.left > 0 {
		n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
		b.left -= n
		return n, err
	}
	n, err := b.ReadCloser.Read(p[:1])
	if n > 0 {
		return 0, errOver
	}
	return 0, err
}

type boundedCredentials struct{ boundedBody }

func (b *boundedCredentials) Read(p []byte) (int, error) {
	n, err := b.boundedBody.Read(p)
	if err == errOver {
		err = &boundError{text: "an answer with credentials has more than 1 MiB"}
	}
	return n, err
}

// boundedPage is a page of a listing. The SDK makes much more memory of a key than its tag takes, so boundedPage
// counts tags before the SDK reads them.
type boundedPage struct {
	boundedBody
	tags int // number of tags still allowed
}

func (b *boundedPage) Read(p []byte) (int, error) {
	n, err := b.boundedBody.Read(p)
	if err == errOver {
		return n, &boundError{text: "a page of the listing has more than 16 MiB"}
	}
	if b.tags -= bytes.Count(p[:n], []byte("<")); b.tags < 0 {
		return 0, errPageKeys
	}
	return n, err
}

var errPageKeys = &boundError{text: "a page of the listing has more than 1,000 keys"}

// boundedError is the body of an error.
type boundedError struct {
	boundedBody
	head []byte // bytes read so far
}

func (b *boundedError) Read(p []byte) (int, error) {
	n, err := b.boundedBody.Read(p)
	b.head = append(b.head, p[:n]...)
	if err == errOver {
		err = &boundError{text: "its error has more than 4 KiB", code: codeIn(b.head)}
	}
	return n, err
}

// codeIn returns the code at the beginning of an error of S3, or "".
func codeIn(head []byte) (code string) {
	d := xml.NewDecoder(bytes.NewReader(head))
	for depth := 0; ; {
		token, err := d.Token()
		if err != nil {
			return ""
		}
		switch token := token.(type) {
		case xml.StartElement:
			if depth++; depth == 2 && token.Name.Local == "Code" {
				if d.DecodeElement(&code, &token) != nil {
					return ""
				}
				return code
			}
		case xml.EndElement:
			depth--
		}
	}
}
