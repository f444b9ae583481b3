package s3

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"lcache/source/internal/object"
)

func final(format string, args ...any) *object.Error {
	return &object.Error{Trouble: object.Final, Err: fmt.Errorf(format, args...)}
}

// signable returns the version of the credentials to sign a request with, or an error if there are none.
func (s *Store) signable(ctx context.Context) (version int, err error) {
	if s.creds == nil {
		return 0, nil
	}
	provider, version := s.creds.now()
	_, err = provider.Retrieve(ctx)
	switch {
	case err == nil:
		s.had.Store(true)
		return version, nil
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case s.had.Load(): // they are being renewed, which may fail for a moment
		return 0, &object.Error{Trouble: object.Transient, Err: errors.New("the credentials have expired and can't be renewed: get new ones (such as by aws sso login)")}
	}
	if long := new(boundError); errors.As(err, &long) {
		return 0, final("the credentials can't be read: %s: check the address of the service that gives them, and whether a proxy stands between", long)
	}
	if text := strings.ToLower(err.Error()); strings.Contains(text, "sso") || strings.Contains(text, "expired") {
		return 0, final("the credentials have expired: get new ones (such as by aws sso login)")
	}
	return 0, final("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, give --s3-profile NAME, or --s3-unsigned if the bucket is public")
}

// explain turns an error of the SDK into one of lcache: one line that says what to do. needs is the permission for
// the request; signed is the version of the credentials that it was signed with.
func (s *Store) explain(ctx context.Context, err error, needs string, signed int) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	answer := new(smithyhttp.ResponseError)
	if !errors.As(err, &answer) || answer.HTTPStatusCode() == 0 {
		return s.unreachable(err)
	}
	long := new(boundError)
	switch {
	case !errors.As(err, &long):
		return s.judge(ctx, err, answer, codeOf(err), needs, signed)
	case answer.HTTPStatusCode() < 300:
		return final("%s does not answer as S3 does: %s", s.set.where(), long)
	}
	e := s.judge(ctx, err, answer, long.code, needs, signed)
	e.Err = fmt.Errorf("%w (%s, and was not read further)", e.Err, long)
	return e
}

// codeOf returns the code of an error of S3, or "".
func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// judge is explain for an answer with a code.
func (s *Store) judge(ctx context.Context, err error, answer *smithyhttp.ResponseError, code, needs string, signed int) *object.Error {
	status, header := answer.HTTPStatusCode(), answer.Response.Header
	known := status < 300 || code != "" && code != "UnknownError" && code != http.StatusText(status)
	if isHTML(header) && status < 500 && !known {
		return s.page()
	}
	switch code {
	case "NoSuchBucket":
		return final("bucket %s not found at %s: check its name, and --s3-endpoint-url", s.bucket, s.set.where())
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "TemporaryRedirect", "MovedPermanently":
		return s.elsewhere(header, err)
	case "RequestTimeTooSkewed":
		return final("this machine's clock is wrong, so %s refuses its signatures: set the clock (such as by chronyc makestep)", s.set.where())
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired":
		if s.creds != nil && s.creds.renew(ctx, signed) {
			return &object.Error{Trouble: object.Transient, Err: errors.New("the session token has expired; a new one was found")}
		}
		return final("the session token has expired: get new credentials (such as by aws sso login), and start again; a server that still runs keeps the environment it was started in: end it by lcache stop")
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidClientTokenId":
		return final("%s does not know these credentials (%s): check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or --s3-profile, and --s3-endpoint-url", s.set.where(), code)
	case "SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests":
		return busy(object.Slow, header, "%s asks for fewer requests (%s)", s.set.where(), code)
	case "NoSuchKey":
		return &object.Error{Trouble: object.Gone, Err: errors.New("it is not in the bucket")}
	case "InvalidObjectState":
		return final("it is archived (Glacier): restore it first")
	}
	switch {
	case status >= 300 && status < 400:
		return s.elsewhere(header, err)
	case status == http.StatusNotFound:
		return &object.Error{Trouble: object.Gone, Err: errors.New("it is not in the bucket")}
	case status == http.StatusPreconditionFailed, status == http.StatusRequestedRangeNotSatisfiable:
		return &object.Error{Trouble: object.Changed, Err: fmt.Errorf("%s answers %d", s.set.where(), status)}
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		if s.set.Unsigned {
			return final("denied: the bucket %s is not public: leave out --s3-unsigned, and give credentials", s.bucket)
		}
		return final("denied: these credentials lack %s for the bucket %s%s", needs, s.bucket, s.payHint())
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return busy(object.Slow, header, "%s answers %d", s.set.where(), status)
	case status >= 500, status == http.StatusRequestTimeout, code == "RequestTimeout", code == "InternalError":
		return busy(object.Transient, header, "%s answers %d", s.set.where(), status)
	case status < 300:
		return busy(object.Transient, header, "the answer of %s can't be read: %s", s.set.where(), innermost(err))
	}
	return final("%s answers %d (%s)", s.set.where(), status, clean(code))
}

func (s *Store) payHint() string {
	if s.set.RequesterPays {
		return ": ask its owner"
	}
	return ": ask its owner, or give --s3-requester-pays if its readers pay"
}

func busy(t object.Trouble, header http.Header, format string, args ...any) *object.Error {
	e := &object.Error{Trouble: t, Err: fmt.Errorf(format, args...)}
	if seconds, err := strconv.Atoi(header.Get("Retry-After")); err == nil && seconds > 0 {
		e.After = time.Duration(min(seconds, 3600)) * time.Second
	}
	return e
}

// elsewhere returns the error for a bucket in another region.
func (s *Store) elsewhere(header http.Header, err error) *object.Error {
	region := header.Get("X-Amz-Bucket-Region")
	if region == "" { // AuthorizationHeaderMalformed has it in its text
		if _, after, found := strings.Cut(err.Error(), "expecting '"); found {
			region, _, _ = strings.Cut(after, "'")
		}
	}
	if region == "" || region == s.region {
		return final("the bucket %s is not in the region %s of %s: give --s3-region, or --s3-endpoint-url", s.bucket, s.region, s.set.where())
	}
	return final("the bucket %s is in the region %s, not %s: give --s3-region %s", s.bucket, clean(region), s.region, clean(region))
}

// page returns the error for an answer from a proxy or another server.
func (s *Store) page() *object.Error {
	return final("%s answers with a web page, not as S3 does: check --s3-endpoint-url, and whether a proxy (HTTPS_PROXY) stands between", s.set.where())
}

func isHTML(header http.Header) bool {
	return strings.HasPrefix(strings.ToLower(header.Get("Content-Type")), "text/html")
}

// isPage reports whether an answer that was parsed is nevertheless a web page.
func isPage(m middleware.Metadata) bool {
	raw, ok := awsmiddleware.GetRawResponse(m).(*smithyhttp.Response)
	return ok && isHTML(raw.Header)
}

// unreachable returns the error of a request without an answer.
func (s *Store) unreachable(err error) error {
	if dns := new(net.DNSError); errors.As(err, &dns) && dns.IsNotFound {
		return final("%s can't be reached: host %s does not exist: check --s3-endpoint-url and --s3-region", s.set.where(), clean(dns.Name))
	}
	if text := err.Error(); strings.Contains(text, "certificate") || strings.Contains(text, "HTTP response to HTTPS client") {
		return final("%s can't be trusted: %s: check --s3-endpoint-url, or give its certificate by AWS_CA_BUNDLE", s.set.where(), innermost(err))
	}
	if op := new(net.OpError); !errors.As(err, &op) && isRequest(err) {
		return final("%s: the request can't be made: %s", s.set.where(), innermost(err))
	}
	return &object.Error{Trouble: object.Transient, Err: fmt.Errorf("%s can't be reached: %s", s.set.where(), innermost(err))}
}

// isRequest reports whether an error occurred before anything was sent.
func isRequest(err error) bool {
	return errors.As(err, new(*smithy.SerializationError)) || errors.As(err, new(*smithy.InvalidParamsError))
}

// innermost returns the text of the last error in a chain. Outer errors contain addresses and headers.
func innermost(err error) string {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return clean(err.Error())
}

// clean turns a text from a server into one short line.
func clean(text string) string {
	text = oneLine(text[:min(len(text), 1000)]) // it may be very long
	if len(text) > 200 {
		text = text[:200] + "…"
	}
	return text
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
