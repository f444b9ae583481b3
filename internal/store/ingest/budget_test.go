package ingest_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lcache/internal/errcode"
	"lcache/internal/store/ingest"
	"lcache/source"
)

// TestBudgetBelowManifest: a budget that has no room for a large manifest is an error before the manifest is written.
func TestBudgetBelowManifest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.bin")
	if err := os.WriteFile(file, make([]byte, 500_000), 0o666); err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(t.TempDir(), "cache")
	_, err := ingest.Run(t.Context(), ingest.Options{Source: "bin:" + file, Records: source.RecordFlags{"record-bytes": "1"}, Dirs: []string{cache}, Budget: 4 << 20})
	if code, ok := errcode.Of(err); !ok || code != errcode.BudgetTooSmall || !strings.HasPrefix(err.Error(), "the manifest takes at least 2") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(cache); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a cache is left: %v", err)
	}
}
