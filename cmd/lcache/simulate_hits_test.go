package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"lcache/cmd/lcache/internal/hitratio"
	"lcache/internal/testenv"
)

// TestSimulateHits: a table for each method, a row for each size of memory; the same as JSON; a picture.
func TestSimulateHits(t *testing.T) {
	testenv.WithoutRace(t)
	dir := t.TempDir()
	trace, drawn := filepath.Join(dir, "losses.f32"), filepath.Join(dir, "hits.svg")
	var losses []byte
	for i := range 6 * 50 {
		losses, _ = binary.Append(losses, binary.LittleEndian, float32(i%50))
	}
	if err := os.WriteFile(trace, losses, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"simulate", "--importance", trace, "--samples", "50", "--policy", "minio,paper,next-use"}
	var stdout, stderr bytes.Buffer
	if code := run(append(args, "--plot", drawn), &stdout, &stderr); code != exitDone {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	for _, want := range []string{
		"permutations, no importance: 50 samples, 6 epochs, hit ratios of those from epoch 1 on\n  memory   minio  next-use\n  10.0 %  10.0 %",
		"impact: 50 samples, 6 epochs, hit ratios of those from epoch 3 on\n  memory   minio   paper  next-use\n  10.0 %",
		"shade, rep 3: 50 samples", "by the share of it for unstable samples\n  share    paper\n  0.0 %  ",
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("got\n%s\nwant in it\n%s", &stdout, want)
		}
	}
	if strings.Contains(stdout.String(), "spider") {
		t.Error("hit ratios of neighbours from losses alone")
	}
	if b, err := os.ReadFile(drawn); err != nil || !bytes.Contains(b, []byte("ImPACT, as its Fig. 20")) || !bytes.Contains(b, []byte("Fig. 21")) || !bytes.Contains(b, []byte("Fig. 14")) || bytes.Contains(b, []byte("SpiderCache")) {
		t.Errorf("the picture: %v, %d bytes", err, len(b))
	}
	stdout.Reset()
	if code := run(append(args, "--json"), &stdout, &stderr); code != exitDone {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	var report hitratio.Report
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil || len(report.Curves) != 2+3*3 || report.Samples != 50 || report.Seeds != 1 {
		t.Errorf("%v: %+v", err, report)
	}
}

// TestImportancePicture: the command of docs/importance.md draws the picture of that page.
func TestImportancePicture(t *testing.T) {
	testenv.Long(t)
	testenv.WithoutRace(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the picture was drawn on amd64: the last digits of floats differ elsewhere")
	}
	drawn := filepath.Join(t.TempDir(), "importance.svg")
	var stdout, stderr bytes.Buffer
	if code := run([]string{"simulate", "--importance", hitratio.AR1, "--plot", drawn}, &stdout, &stderr); code != exitDone {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	got, err := os.ReadFile(drawn)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../../docs/img/importance.svg")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/img/importance.svg differs from the picture of lcache simulate --importance ar1 --plot: run it in docs/img, and look at the picture and the numbers of docs/importance.md")
	}
}
