package cache

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"lcache/internal/serve/schedule"
	"lcache/internal/usage"
)

// FuzzJob reads any bytes as job.json, with or without a right checksum. An accepted record is the same after it is
// written and read again. Its schedule is an error, or works.
func FuzzJob(f *testing.F) {
	dir := f.TempDir()
	for _, j := range []Record{
		{Schema: 1, Source: "/data", Job: schedule.Job{Recipe: "torch.distributed_sampler", Seed: "7", Epochs: 3, BatchSize: 8, World: 2, DropLast: true}, Budget: 1 << 30, Threshold: 1 << 63, Kept: 10, KeptBytes: 1000, Chunk: 80},
		{Schema: 1, Source: "/data", Exts: []string{".jpg"}, Flat: true, Job: schedule.Job{Recipe: "torch.dataloader", Seed: "18446744073709551615", Params: map[string]string{"num_workers": "2"}}},
		{Schema: 1},
	} {
		if err := WriteRecord(dir, j); err != nil {
			f.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, RecordName))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, false)
		body, _, _ := bytes.Cut(b, []byte(jobChecksum))
		f.Add(append(body, "\n}"...), true)
	}
	f.Add([]byte(`{"schema": 1, "job": {"recipe": "torch.distributed_sampler", "ranks": [-1, 4], "world": -3, "epochs": -1}`+"\n}"), true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal {
			b = sealJob(bytes.Clone(b))
		}
		if err := os.WriteFile(filepath.Join(dir, RecordName), b, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := ReadRecord(dir)
		if err != nil {
			return
		}
		if err := WriteRecord(dir, j); err != nil {
			t.Fatalf("%+v can't be written: %v", j, err)
		}
		again, err := ReadRecord(dir)
		if err != nil {
			t.Fatalf("%+v can't be read again: %v", j, err)
		}
		first, _ := os.ReadFile(filepath.Join(dir, RecordName))
		if err := WriteRecord(dir, again); err != nil {
			t.Fatal(err)
		}
		second, _ := os.ReadFile(filepath.Join(dir, RecordName))
		if !bytes.Equal(first, second) {
			t.Fatalf("%s became %s", first, second)
		}
		if j.Job.World > 1000 || len(j.Job.Params) > 0 {
			return // the fuzz targets of shuffle cover these
		}
		s, err := schedule.New(j.Job, 50)
		if err != nil {
			var usage *usage.Error
			if s != nil || errors.As(err, &usage) && usage.Reason == "" {
				t.Fatalf("%+v: %v", j.Job, err)
			}
			return
		}
		_, _ = s.Order(t.Context(), 0)
		if s.Exists(-1) {
			t.Errorf("%+v has an epoch -1", j.Job)
		}
	})
}
