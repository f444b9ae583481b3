package s3

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"lcache/source/internal/object"
)

// An Item is one key of a listing.
type Item struct {
	Key  string
	Size int64
	Tag  string
}

// mostSpans is the maximum number of spans of keys in a listing.
const mostSpans = 64

// lister is a listing in progress.
type lister struct {
	store  *Store
	prefix string
	do     func(ctx context.Context, send func(ctx context.Context) error) error

	mu    sync.Mutex // held while take runs
	take  func([]Item) error
	given int // number of keys passed to take
}

// span is a part of all keys: greater than after, up to and including until. "": no limit.
type span struct{ after, until string }

// List calls take with all keys below a prefix, page by page in any order; calls do not overlap. do sends a request,
// with retries. A listing of more than one page uses several requests in parallel: it first requests the folders at
// the top, and splits the keys into spans at their names. Without folders, it splits by the next letters of the
// names.
func (s *Store) List(ctx context.Context, prefix string, jobs int, do func(ctx context.Context, send func(ctx context.Context) error) error, take func([]Item) error) error {
	l := &lister{store: s, prefix: prefix, do: do, take: take}
	first, more, err := l.page(ctx, "", 1000)
	if err != nil {
		return err
	}
	if err := l.give(first); err != nil || !more {
		return err
	}
	if err := l.grow("", first); err != nil {
		return err
	}
	last := first[len(first)-1].Key
	points, err := l.points(ctx, first)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(jobs)
	for _, sp := range spans(last, points) {
		group.Go(func() error { return l.span(ctx, sp) })
	}
	return group.Wait()
}

// spans splits the keys after last at some of the points, which are sorted.
func spans(last string, points []string) (list []span) {
	for len(points) > 0 && points[0] <= last {
		points = points[1:]
	}
	step := max(1, (len(points)+mostSpans-1)/mostSpans)
	for i := step - 1; i < len(points); i += step {
		list = append(list, span{last, points[i]})
		last = points[i]
	}
	return append(list, span{after: last})
}

// points returns names at which the keys can be split.
func (l *lister) points(ctx context.Context, first []Item) (points []string, err error) {
	folders, err := l.folders(ctx)
	if err != nil || len(folders) > 1 {
		return folders, err
	}
	// A prefix common to the keys of the first page is common to all keys, or a shorter one is.
	common := first[0].Key
	for last := first[len(first)-1].Key; !strings.HasPrefix(last, common); {
		common = common[:len(common)-1]
	}
	for ; len(common) > len(l.prefix); common = common[:len(common)-1] {
		if !utf8.ValidString(common) {
			continue
		}
		behind, _, err := l.page(ctx, common+string(utf8.MaxRune), 1)
		if err != nil {
			return nil, err
		}
		if len(behind) == 0 {
			break
		}
	}
	for _, c := range "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" {
		points = append(points, common+string(c))
	}
	return points, nil
}

// span lists one span.
func (l *lister) span(ctx context.Context, sp span) error {
	for more := true; more; {
		var items []Item
		var err error
		if items, more, err = l.page(ctx, sp.after, 1000); err != nil {
			return err
		}
		if err := l.grow(sp.after, items); err != nil {
			return err
		}
		if len(items) > 0 {
			sp.after = items[len(items)-1].Key
		} else {
			more = false
		}
		for n := range items {
			if sp.until != "" && items[n].Key > sp.until {
				items, more = items[:n], false
				break
			}
		}
		if err := l.give(items); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// grow returns an error unless the keys of a page ascend and follow after. Otherwise the listing would have keys
// twice, miss others, or never end.
func (l *lister) grow(after string, items []Item) error {
	for _, item := range items {
		if item.Key <= after {
			return final("%s lists the key %q behind %q: it does not go on where it is asked to (start-after), or has another order than S3, so more than 1,000 keys can't be listed: pack the objects into shards (tar:s3://…), which need no listing",
				l.store.set.where(), clean(item.Key), clean(after))
		}
		after = item.Key
	}
	return nil
}

func (l *lister) give(items []Item) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.given += len(items); l.given > mostKeys {
		return final("%s lists more than %d keys, and a cache holds no more: name a prefix with fewer", l.store.set.where(), int64(mostKeys))
	}
	return l.take(items)
}

// page requests one page of keys after a key. A store may return a page without keys although others follow, for
// example if many were removed. Then page requests the next one.
func (l *lister) page(ctx context.Context, after string, most int32) (items []Item, more bool, err error) {
	in := l.input(most)
	if after != "" {
		in.StartAfter = &after
	}
	out, err := l.send(ctx, in)
	given := tokens{}
	for ; err == nil && len(out.Contents) == 0 && aws.ToBool(out.IsTruncated); out, err = l.send(ctx, in) {
		if err := l.next(in, out, given); err != nil {
			return nil, false, err
		}
		if len(given) == mostEmptyPages {
			return nil, false, final("%s gives %d pages of a listing in a row that have no key, and says that it goes on: pack the objects into shards (tar:s3://…), which need no listing", l.store.set.where(), mostEmptyPages)
		}
	}
	if err != nil {
		return nil, false, err
	}
	for _, o := range out.Contents {
		item, err := l.item(o, out.EncodingType)
		if err != nil {
			return nil, false, err
		}
		items = append(items, item)
	}
	return items, aws.ToBool(out.IsTruncated), nil
}

// item converts a key of a page.
func (l *lister) item(o types.Object, encoding types.EncodingType) (item Item, err error) {
	if item.Key, err = l.decode(aws.ToString(o.Key), encoding); err != nil {
		return item, err
	}
	item.Size, item.Tag = aws.ToInt64(o.Size), strings.Clone(tag(o.ETag))
	if o.Size == nil || item.Size < 0 {
		return item, final("%s tells no size of the key %q that is 0 or more", l.store.set.where(), clean(item.Key))
	}
	if err := object.CheckTag(item.Tag); err != nil {
		return item, final("the key %q in the listing of %s: %w", clean(item.Key), l.store.set.where(), err)
	}
	return item, nil
}

// tokens has the continuation tokens of a listing so far.
type tokens map[string]bool

// next changes a request into the one for the page after an answer.
func (l *lister) next(in *s3.ListObjectsV2Input, out *s3.ListObjectsV2Output, given tokens) error {
	token := aws.ToString(out.NextContinuationToken)
	switch {
	case token == "":
		return final("%s says that a listing goes on, and not where: pack the objects into shards (tar:s3://…), which need no listing", l.store.set.where())
	case len(token) > mostToken:
		return final("%s gives a continuation token of %d bytes, at most %d: pack the objects into shards (tar:s3://…), which need no listing", l.store.set.where(), len(token), mostToken)
	case given[token]:
		return final("%s gives a continuation token again that it gave before, so the listing would not end: pack the objects into shards (tar:s3://…), which need no listing", l.store.set.where())
	}
	given[token] = true
	in.ContinuationToken = &token
	return nil
}

// mostFolderPages is the maximum number of pages of folders that are requested. If each sample has its own folder,
// there are as many folders as keys.
const mostFolderPages = 32

// folders requests the folders at the top, or the first ones if there are very many.
func (l *lister) folders(ctx context.Context) (names []string, err error) {
	in := l.input(1000)
	in.Delimiter = aws.String("/")
	given := tokens{}
	for range mostFolderPages {
		out, err := l.send(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, p := range out.CommonPrefixes {
			name, err := l.decode(aws.ToString(p.Prefix), out.EncodingType)
			if err != nil {
				return nil, err
			}
			names = append(names, name)
		}
		if len(out.CommonPrefixes) == 0 || !aws.ToBool(out.IsTruncated) || l.next(in, out, given) != nil { // the folders only say where to split
			break
		}
	}
	slices.Sort(names) // the order of S3
	return names, nil
}

func (l *lister) input(most int32) *s3.ListObjectsV2Input {
	in := &s3.ListObjectsV2Input{Bucket: &l.store.bucket, EncodingType: types.EncodingTypeUrl, MaxKeys: aws.Int32(most), RequestPayer: l.store.payer}
	if l.prefix != "" {
		in.Prefix = &l.prefix
	}
	return in
}

func (l *lister) send(ctx context.Context, in *s3.ListObjectsV2Input) (out *s3.ListObjectsV2Output, err error) {
	err = l.do(ctx, func(ctx context.Context) error {
		signed, err := l.store.signable(ctx)
		if err != nil {
			return err
		}
		if out, err = l.store.client.ListObjectsV2(ctx, in); err != nil {
			if err = l.store.explain(ctx, err, "s3:ListBucket", signed); isGone(err) {
				err = final("bucket %s not found at %s: check its name, and --s3-endpoint-url", l.store.bucket, l.store.set.where())
			}
			return err
		}
		if isPage(out.ResultMetadata) {
			return l.store.page()
		}
		if len(out.Contents)+len(out.CommonPrefixes) > mostPageKeys {
			return final("%s does not answer as S3 does: %s", l.store.set.where(), errPageKeys)
		}
		return nil
	})
	return out, err
}

func isGone(err error) bool {
	e, ok := err.(*object.Error)
	return ok && e.Trouble == object.Gone
}

// decode decodes a key, which may have characters that XML does not allow.
func (l *lister) decode(key string, encoding types.EncodingType) (string, error) {
	decoded := strings.Clone(key)
	if encoding == types.EncodingTypeUrl {
		var err error
		if decoded, err = url.QueryUnescape(key); err != nil {
			return "", final("a key in the listing is not encoded as S3 does: %s", clean(key))
		}
	}
	if len(decoded) > mostKey {
		return "", final("the listing of %s has a key of %d bytes, at most %d: %q", l.store.set.where(), len(decoded), mostKey, clean(decoded))
	}
	return decoded, nil
}
