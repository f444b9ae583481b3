package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"lcache/internal/errcode"
	"lcache/internal/jsonbytes"
)

// A Report has the facts about a machine, and the findings and advice that follow. Other commands read a saved report.
type Report struct {
	Schema  int      `json:"schema"`
	Version string   `json:"version"` // of the program that looked
	Facts   *Facts   `json:"facts"`
	Checks  []Check  `json:"checks"`
	Unseen  []string `json:"unseen"`           // facts that can't be measured
	Advice  *Advice  `json:"advice,omitempty"` // nil: no source was given
}

// Examine looks at the machine, reads the source for a time if one is given, and draws the conclusions. A source that can't be opened is an error
// before anything is measured.
func Examine(ctx context.Context, look Options, read ReadOptions) (*Report, error) {
	if read.Source != "" {
		src, err := read.open()
		if err != nil {
			return nil, err
		}
		if err := src.Close(); err != nil {
			return nil, err
		}
	}
	facts, err := Look(ctx, look)
	if err != nil {
		return nil, err
	}
	r := &Report{Schema: 1, Facts: facts}
	if read.Source != "" {
		read.Progress = look.Progress
		if facts.Reading, err = Read(ctx, read); err != nil {
			return nil, err
		}
		advice := facts.Advise()
		r.Advice = &advice
	}
	r.Checks, r.Unseen = facts.Checks(), facts.Blind()
	return r, nil
}

// Err returns the first finding that is bad: a cache can't be there. It is nil if there is none.
func (r *Report) Err() error {
	for _, c := range r.Checks {
		if c.State == Bad {
			return errcode.Errorf(errcode.CheckFailed, "%s: %s: %s", c.Name, c.Found, c.Do)
		}
	}
	return nil
}

// Save writes the report to a file, whole or not at all.
func (r *Report) Save(path string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("save the report: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
			err = fmt.Errorf("save the report: %w", err)
		}
	}()
	body, err := jsonbytes.MarshalIndent(r, "", "  ")
	if err == nil {
		_, err = f.Write(append(body, '\n'))
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// DiskLimit returns the rate of all devices in a saved report together, in bytes a second: of reads while the same is written, as an epoch
// does.
func DiskLimit(path string) (float64, error) {
	var report Report
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read the facts: %w", err)
	}
	if err := jsonbytes.Unmarshal(text, &report); err != nil {
		return 0, fmt.Errorf("read the facts in %s: %w; make them again with lcache doctor --cache DIR --save FILE", path, err)
	}
	rate := 0.0
	seen := map[[3]float64]bool{} // directories on one device have its figures to the last digit
	if report.Facts != nil {
		for _, p := range report.Facts.Places {
			if d := p.Device; d != nil && !seen[[3]float64{d.Read, d.BothRead, d.IOPS}] {
				rate += d.BothRead
				seen[[3]float64{d.Read, d.BothRead, d.IOPS}] = true
			}
		}
	}
	if rate <= 0 {
		return 0, errcode.Errorf(errcode.InputFile, "%s says nothing of a disk: make it again with lcache doctor --cache DIR --save FILE", path)
	}
	return rate, nil
}
