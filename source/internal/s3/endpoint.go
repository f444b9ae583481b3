package s3

import (
	"context"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/auth"
	transport "github.com/aws/smithy-go/endpoints"
)

// oneEndpoint resolves the endpoint of a bucket's objects once. The SDK resolves it twice for each request, which
// takes a sixth of all its time.
type oneEndpoint struct {
	rules s3.EndpointResolverV2
	known atomic.Pointer[knownEndpoint]
}

// knownEndpoint is copied for each use, because the SDK changes its value.
type knownEndpoint struct {
	transport.Endpoint
	options []*auth.Option
}

func newOneEndpoint() *oneEndpoint { return &oneEndpoint{rules: s3.NewDefaultEndpointResolverV2()} }

// ResolveEndpoint is the SDK's. A client has one bucket and one set of options, so the result is the same for all
// requests for an object.
func (o *oneEndpoint) ResolveEndpoint(ctx context.Context, p s3.EndpointParameters) (transport.Endpoint, error) {
	if p.Key == nil {
		return o.rules.ResolveEndpoint(ctx, p)
	}
	k := o.known.Load()
	if k == nil {
		e, err := o.rules.ResolveEndpoint(ctx, p)
		if err != nil {
			return e, err
		}
		k = &knownEndpoint{Endpoint: e}
		k.options, _ = auth.GetAuthOptions(&k.Properties)
		o.known.Store(k)
	}
	return k.copied(), nil
}

func (k *knownEndpoint) copied() transport.Endpoint {
	e := transport.Endpoint{URI: k.URI, Headers: k.Headers.Clone()}
	e.Properties.SetAll(&k.Properties)
	if len(k.options) > 0 {
		options := make([]*auth.Option, len(k.options))
		for i, o := range k.options {
			options[i] = &auth.Option{SchemeID: o.SchemeID}
			options[i].IdentityProperties.SetAll(&o.IdentityProperties)
			options[i].SignerProperties.SetAll(&o.SignerProperties)
		}
		auth.SetAuthOptions(&e.Properties, options)
	}
	return e
}
