package ingest

import (
	"lcache/sample"
	"lcache/source"
)

// hint guesses from the names and sizes of the files how they contain samples, and reports that before any file is read.
func (in *run) hint() error {
	if in.sharded() || in.o.Group != "" {
		return nil
	}
	m, r := in.cache.Manifest, in.report
	err := r.hint(in.cache.Source.String(), m.Len(), func(i int) (string, uint32, error) {
		name, err := m.Name(sample.Index(i))
		return name, m.Size(sample.Index(i)), err
	})
	if err == nil && in.o.Hint != nil && (r.TarPattern != "" || r.Records != "") {
		in.o.Hint(r)
	}
	return err
}

// hint sets TarPattern and Records, for n files.
func (r *Report) hint(src string, n int, file func(i int) (name string, size uint32, err error)) (err error) {
	r.TarPattern, err = source.TarPattern(src, n, func(i int) (string, error) {
		name, _, err := file(i)
		return name, err
	})
	if err == nil {
		r.Records, err = source.Records(src, n, file)
	}
	return err
}
