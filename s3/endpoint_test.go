package s3_test

import (
	"fmt"
	"io"
	"sync"
	"testing"

	"lcache/object"
	"lcache/s3"
	"lcache/s3/s3test"
)

// Many requests at once, each signed for its own object, share what is known of the endpoint.
func TestManyAtOnce(t *testing.T) {
	g := s3test.Start(t)
	files := map[string][]byte{}
	for i := range 8 {
		files[fmt.Sprintf("p/%d", i)] = fmt.Append(nil, i)
	}
	g.Fill(t, files)
	s := open(t, g.URL, s3test.Bucket, s3.Settings{})
	var wg sync.WaitGroup
	for key, data := range files {
		wg.Go(func() {
			for range 20 {
				a, err := s.Get(t.Context(), object.Request{Key: key, Len: 1, Whole: true})
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(a.Body)
				if a.Body.Close(); err != nil || string(got) != string(data) {
					t.Errorf("%s: %q, %v", key, got, err)
				}
			}
		})
	}
	wg.Wait()
}
