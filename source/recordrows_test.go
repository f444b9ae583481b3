package source_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"lcache/source"
)

// TestMissingFirstPart: no other part takes the place of a first part that a sample lacks. nulls.arrow has input_ids, null in rows 4 and 7, and
// attention_mask, null in rows 2 and 4.
func TestMissingFirstPart(t *testing.T) {
	for _, c := range []struct {
		src  string
		opts source.Options
	}{{"arrow:internal/records/testdata/nulls.arrow", source.Options{}}, {"parquet:internal/records/testdata/nulls.parquet", source.Options{Stream: true}}} {
		var logged bytes.Buffer
		c.opts.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		s := openRemote(t, c.src, c.opts)
		_, entries, err := s.List(t.Context(), nil)
		if err != nil || len(entries) != 10 {
			t.Fatalf("%s: %d samples, %v", c.src, len(entries), err)
		}
		for i, e := range entries {
			var names []string
			for _, p := range e.Parts {
				names = append(names, fmt.Sprintf("%s:%d", p.Ext, p.Size))
			}
			want, ok := map[int]string{2: "input_ids:8", 4: "", 7: ":0 attention_mask:8"}[i]
			if !ok {
				want = "input_ids:8 attention_mask:8"
			}
			if got := strings.Join(names, " "); got != want {
				t.Errorf("%s: row %d has %q, want %q", c.src, i, got, want)
			}
		}
		if !strings.Contains(logged.String(), "samples=1 first=nulls.") || !strings.Contains(logged.String(), "/7 columns=input_ids") {
			t.Errorf("%s: the log has %q", c.src, logged.String())
		}
		for _, part := range []string{"input_ids", "attention_mask"} {
			c.opts.Part = part
			_, _, err := openRemote(t, c.src, c.opts).List(t.Context(), nil)
			row := map[string]int{"input_ids": 7, "attention_mask": 2}[part]
			if want := fmt.Sprintf(`/%d": it has no part %q: choose another --part, or give all samples one`, row, part); err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%s, --part %s: %v, want %s", c.src, part, err, want)
			}
		}
	}
	s := openRemote(t, "arrow:internal/records/testdata/nulls.arrow", source.Options{})
	_, entries, err := s.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, entries[7].Size)
	want := binary.LittleEndian.AppendUint32([]byte{7, 0, 0, 0}, 1)
	if err := s.Read(t.Context(), entries[7], got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("row 7 has %x, %v, want %x", got, err, want)
	}
}
