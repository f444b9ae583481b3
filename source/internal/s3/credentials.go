package s3

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// renewable looks for new credentials after a store has refused the old ones as expired. Files of the AWS tools may
// have new ones by then; the environment of a process has not.
type renewable struct {
	load func(ctx context.Context) (aws.CredentialsProvider, error)

	mu       sync.Mutex // guards the fields that follow
	provider aws.CredentialsProvider
	version  int       // incremented when new credentials are found
	looked   time.Time // when they were last looked for
}

// lookAgain is the minimum time between two reads of the files, because many requests are refused at once.
const lookAgain = time.Second

func (r *renewable) now() (aws.CredentialsProvider, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.provider, r.version
}

// Retrieve returns the credentials to sign a request.
func (r *renewable) Retrieve(ctx context.Context) (aws.Credentials, error) {
	provider, _ := r.now()
	return provider.Retrieve(ctx)
}

// renew looks for credentials newer than version, and reports whether it found some.
func (r *renewable) renew(ctx context.Context, version int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.version != version {
		return true
	}
	if time.Since(r.looked) < lookAgain {
		return false
	}
	r.looked = time.Now()
	provider, err := r.load(ctx)
	if err != nil {
		return false
	}
	found, err := provider.Retrieve(ctx)
	if err != nil {
		return false
	}
	if had, err := r.provider.Retrieve(ctx); err == nil && had.AccessKeyID == found.AccessKeyID && had.SessionToken == found.SessionToken {
		return false
	}
	r.provider = provider
	r.version++
	return true
}
