// Package s3 is an [object.Store] for buckets of S3 and of compatible services.
//
// [Open] returns a [Store] for one bucket. The SDK of AWS finds the credentials and signs requests. Its retries are
// off: the [object.Reader] that uses the store decides about retries. Every error of a Store is an [object.Error]
// whose text says what to do and contains no secret. [Store.List] lists keys with many parallel requests. All methods
// may be called concurrently, except Close.
package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"lcache/source/internal/object"
)

// Store is one bucket.
type Store struct {
	bucket string
	set    Settings
	client *s3.Client
	apart  *s3.Client  // with separate connections
	creds  *renewable  // nil: requests are not signed
	had    atomic.Bool // credentials were found
	close  func()
	payer  types.RequestPayer
	region string
}

// Open returns a store for a bucket. It sends no request to the bucket.
func Open(ctx context.Context, bucket string, set Settings) (*Store, error) {
	load := []func(*config.LoadOptions) error{
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
		config.WithLogger(logging.Nop{}),
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(tune)),
		config.WithAPIOptions([]func(*middleware.Stack) error{boundCredentials}),
	}
	if set.Region != "" {
		load = append(load, config.WithRegion(set.Region))
	}
	if set.Profile != "" {
		load = append(load, config.WithSharedConfigProfile(set.Profile))
	}
	if set.Unsigned {
		load = append(load, config.WithCredentialsProvider(aws.AnonymousCredentials{}))
	}
	// The defaults of newer SDKs break several services that are not AWS.
	if os.Getenv("AWS_RESPONSE_CHECKSUM_VALIDATION") == "" {
		load = append(load, config.WithResponseChecksumValidation(aws.ResponseChecksumValidationWhenRequired))
	}
	if os.Getenv("AWS_REQUEST_CHECKSUM_CALCULATION") == "" {
		load = append(load, config.WithRequestChecksumCalculation(aws.RequestChecksumCalculationWhenRequired))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, &object.Error{Trouble: object.Final, Err: fmt.Errorf("the AWS configuration can't be used: %s: check --s3-profile, ~/.aws/config and ~/.aws/credentials", oneLine(err.Error()))}
	}
	cfg.APIOptions = nil // the options for finding credentials limit answers; objects are larger
	if cfg.Region == "" {
		cfg.Region = "us-east-1"
	}
	s := &Store{bucket: bucket, set: set, region: cfg.Region}
	if set.RequesterPays {
		s.payer = types.RequestPayerRequester
	}
	if !set.Unsigned {
		s.creds = &renewable{provider: cfg.Credentials, load: func(ctx context.Context) (aws.CredentialsProvider, error) {
			again, err := config.LoadDefaultConfig(ctx, load...)
			return again.Credentials, err
		}}
		cfg.Credentials = s.creds
	}
	var transports []*http.Transport
	client := func() *s3.Client {
		transport := &http.Transport{}
		if b, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok { // with the certificates of AWS_CA_BUNDLE
			transport = b.GetTransport()
		}
		transports = append(transports, transport)
		return s3.NewFromConfig(cfg, func(o *s3.Options) {
			// Redirects are not followed, because a request that is signed for one host must not be sent to another.
			o.HTTPClient = &http.Client{Transport: bounded{transport}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
			o.EndpointResolverV2 = newOneEndpoint()
			o.UsePathStyle = set.PathStyle || set.Endpoint != ""
			o.DisableLogOutputChecksumValidationSkipped = true
			if set.Endpoint != "" {
				o.BaseEndpoint = aws.String(set.Endpoint)
			}
		})
	}
	s.client, s.apart = client(), client()
	s.close = func() {
		for _, t := range transports {
			t.CloseIdleConnections()
		}
	}
	return s, nil
}

// tune sets a transport up for many small answers from one host.
func tune(t *http.Transport) {
	t.MaxIdleConns, t.MaxIdleConnsPerHost, t.MaxConnsPerHost = 512, 512, 0
	t.IdleConnTimeout = 30 * time.Second
	t.ForceAttemptHTTP2 = false // many connections are faster than one
	t.DisableCompression = true
	t.MaxResponseHeaderBytes = 64 << 10
	t.ReadBufferSize = 16 << 10 // fits headers and a small object; the rest of a larger one is read to its place without another copy
}

// Close closes idle connections.
func (s *Store) Close() error {
	s.close()
	return nil
}

// Get requests bytes of an object.
func (s *Store) Get(ctx context.Context, r object.Request) (*object.Answer, error) {
	signed, err := s.signable(ctx)
	if err != nil {
		return nil, err
	}
	in := &s3.GetObjectInput{Bucket: &s.bucket, Key: &r.Key, RequestPayer: s.payer}
	if !r.Whole {
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", r.From, r.From+r.Len-1))
	}
	if r.Tag != "" {
		in.IfMatch = aws.String(`"` + r.Tag + `"`)
	}
	client := s.client
	if r.OwnConnection {
		client = s.apart
	}
	out, err := client.GetObject(ctx, in)
	if err != nil {
		return nil, s.explain(ctx, err, "s3:GetObject", signed)
	}
	if out.ETag == nil && isPage(out.ResultMetadata) {
		out.Body.Close()
		return nil, s.page()
	}
	if err := s.errorBody(out); err != nil {
		out.Body.Close()
		return nil, err
	}
	a := &object.Answer{Body: out.Body, Size: -1, Tag: tag(out.ETag)}
	if out.ContentRange != nil {
		a.From, a.Size = object.ContentRange(*out.ContentRange)
	} else if out.ContentLength != nil {
		a.Size = *out.ContentLength
	}
	return a, nil
}

// Stat requests the size and tag of an object.
func (s *Store) Stat(ctx context.Context, key string) (object.Info, error) {
	signed, err := s.signable(ctx)
	if err != nil {
		return object.Info{}, err
	}
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: &key, RequestPayer: s.payer})
	if err != nil {
		return object.Info{}, s.explain(ctx, s.inFull(ctx, key, err), "s3:GetObject", signed)
	}
	if out.ETag == nil && isPage(out.ResultMetadata) {
		return object.Info{}, s.page()
	}
	info := object.Info{Size: -1, Tag: tag(out.ETag)}
	if out.ContentLength != nil {
		info.Size = *out.ContentLength
	}
	return info, nil
}

// inFull replaces the error of a HEAD by the error of a GET. The answer to a HEAD has no body that says why a request
// is refused.
func (s *Store) inFull(ctx context.Context, key string, err error) error {
	answer := new(smithyhttp.ResponseError)
	if !errors.As(err, &answer) || !slices.Contains([]int{http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound}, answer.HTTPStatusCode()) {
		return err
	}
	out, why := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &key, RequestPayer: s.payer, Range: aws.String("bytes=0-0")})
	if why != nil {
		return why
	}
	out.Body.Close()
	return err
}

// tag returns an ETag without its quotes. It is opaque: for some objects it is not a hash of their bytes.
func tag(etag *string) string {
	if etag == nil {
		return ""
	}
	return strings.Trim(*etag, `"`)
}
