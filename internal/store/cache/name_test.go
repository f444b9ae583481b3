package cache

import "testing"

// TestName: the name shown to people is that of the dataset, not a pattern.
func TestName(t *testing.T) {
	for source, want := range map[string]string{
		"/data/train":                         "train",
		"/data/train/":                        "train",
		"/":                                   "/",
		"s3://bucket/imagenet/train/":         "train",
		"https://host/list.txt":               "list.txt",
		"tar:/data/shards/*.tar":              "shards",
		"tar:/data/shards/train-{000..5}.tar": "train",
		"tar:/data/shards/train_????.tar":     "train",
		"tar:s3://bucket/*.tar":               "bucket",
	} {
		if got := (&Cache{Record: Record{Source: source}}).Name(); got != want {
			t.Errorf("%s: got %q, want %q", source, got, want)
		}
	}
}
