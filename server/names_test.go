package server

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"unicode/utf8"

	"lcache/internal/jsonbytes"
	"lcache/internal/serve/status"
	"lcache/source"
)

// TestTokensThatAreNotUTF8: two tokens that differ in such bytes are two jobs, and the status has the tokens as they were sent.
func TestTokensThatAreNotUTF8(t *testing.T) {
	c := attach(t, start(t, testEngine(t, nil), nil), "")
	numbers, want := map[int]bool{}, map[string]bool{"run\xe8": true, "run\xe9": true}
	for _, said := range []string{`{"token": "run\udce8"}`, `{"token": "run\uDCE9"}`, `{"token": "run\udce9"}`} { // as Python writes them, and the last one again
		f := c.ask(typeJob, []byte(said))
		var got struct{ Job int }
		if err := json.Unmarshal(f.body, &got); err != nil || f.kind != typeJSON {
			t.Fatalf("JOB was answered with type %d: %s", f.kind, f.body)
		}
		numbers[got.Job] = true
	}
	var status status.Document
	f := c.ask(typeStatus, nil)
	if err := jsonbytes.Unmarshal(f.body, &status); err != nil || !utf8.Valid(f.body) {
		t.Fatal(err)
	}
	for _, j := range status.Jobs {
		delete(want, j.ID)
	}
	if len(numbers) != 2 || len(want) != 0 {
		t.Errorf("numbers %v; the status lacks %v", numbers, want)
	}
}

// TestErrorsAboutNamesThatAreNotUTF8: sample is the unchanged name; message is text that each stream can write.
func TestErrorsAboutNamesThatAreNotUTF8(t *testing.T) {
	for _, c := range []struct {
		err             error
		sample, message string
	}{
		{&source.SampleError{Name: "a/caf\xe9", Op: "read", Err: source.ErrGone}, "a/caf\xe9", `sample "a/caf\xe9"`},
		{&fs.PathError{Op: "open", Path: "/caf\xe9", Err: fs.ErrPermission}, "", `open /caf\xe9: `},
		{fmt.Errorf("%s", strings.Repeat("\xff", 1<<20)), "", `\xff\xff`},
	} {
		b := appendFailure(nil, 1, failureOf(c.err))
		var got failure
		if err := jsonbytes.Unmarshal(b[headerBytes:], &got); err != nil || !utf8.Valid(b[headerBytes:]) || len(b) > maxFrame {
			t.Fatalf("%.80q: %d bytes, %v", c.err, len(b), err)
		}
		if got.Sample != c.sample || !strings.Contains(got.Message, c.message) || !utf8.ValidString(got.Message) {
			t.Errorf("%.80q: got %.200q of sample %q", c.err, got.Message, got.Sample)
		}
	}
}
