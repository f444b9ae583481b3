package main

import (
	"fmt"
	"io"

	"lcache/cmd/lcache/internal/doctor"
	"lcache/internal/store/cachedir"
	"lcache/internal/units"
	"lcache/internal/usage"
)

// marks are the words before a finding.
var marks = map[doctor.State]string{doctor.Good: "good", doctor.Better: "could", doctor.Bad: "bad", doctor.Unseen: "?"}

// writeDoctor prints a line for each finding, then the directories, the advice, and the verdict. given: the user named the directories.
func writeDoctor(w io.Writer, r *doctor.Report, given bool) {
	width := 0
	for _, c := range r.Checks {
		width = max(width, len(c.Name))
	}
	open := 0
	for _, c := range r.Checks {
		fmt.Fprintf(w, "%-5s  %-*s  %s\n", marks[c.State], width, c.Name, usage.Message(c.Found))
		if c.Do != "" {
			open++
			fmt.Fprintf(w, "%-5s  %-*s  → %s\n", "", width, "", c.Do)
		}
	}
	for _, u := range r.Unseen {
		fmt.Fprintf(w, "%-5s  %-*s  %s\n", "?", width, "not seen", u)
	}
	fmt.Fprintln(w, placesText(r.Facts.Places, given))
	if r.Advice != nil {
		fmt.Fprintln(w)
		writeAdvice(w, r.Facts, *r.Advice)
		return
	}
	if open == 0 {
		fmt.Fprintln(w, "nothing to do")
	}
	fmt.Fprintln(w, "no verdict: give --source DIR, the folder of your samples")
}

// placesText names the directories that were looked at. given: the user named them.
func placesText(places []doctor.Place, given bool) string {
	var dirs []string
	for _, p := range places {
		dirs = append(dirs, p.Dir)
	}
	text := "looked at " + usage.Names(dirs, ", ") + " and its disk"
	if len(dirs) > 1 {
		text = "looked at " + usage.Names(dirs, ", ") + " and their disks"
	}
	if !given {
		text += ", as this is the working directory: --cache DIR names another one"
	}
	return text
}

// writeAdvice prints the rate of the files now, and the expected rate with lcache.
func writeAdvice(w io.Writer, f *doctor.Facts, a doctor.Advice) {
	s := f.Reading
	fmt.Fprintf(w, "%s: %s\n", usage.Name(s.Source), joined(units.Plural(int64(s.Files), "file", "files"), units.Bytes(s.Bytes), s.Kind))
	mean := float64(max(s.Bytes, 1)) / float64(max(s.Files, 1))
	rows := [][]string{{"", "files/s", "rate", ""}}
	for _, r := range s.Readers {
		rows = append(rows, []string{"now, " + units.Plural(int64(r.Readers), "reader", "readers"), units.PerSecond(r.Files, r.Seconds), units.Rate(r.Bytes, r.Seconds), cold(s, r)})
	}
	if a.Expected > 0 {
		rows = append(rows,
			[]string{"lcache, reordering", units.PerSecond(int64(a.Expected/mean), 1), units.Rate(int64(a.Expected), 1), "expected from the device"},
			[]string{"lcache, last epoch", units.PerSecond(int64(a.Last/mean), 1), units.Rate(int64(a.Last), 1), "expected from the device"})
	}
	table(w, "  ", rows)
	needs := fmt.Sprintf("needs   %s on the disk, %s of memory", units.Bytes(int64(a.Disk)), units.Bytes(int64(a.Memory)))
	if a.Share > 0 && a.Share < 1 {
		needs += fmt.Sprintf("; there is room for %s of it", units.Percent(a.Share, 1))
	}
	fmt.Fprintln(w, "  "+needs)
	fmt.Fprintf(w, "%s: %s\n", a.Verdict, a.Why)
}

// cold says which part of the bytes came from the device.
func cold(s *doctor.Reading, r doctor.Reader) string {
	failed := ""
	if r.Failed > 0 {
		failed = units.Plural(r.Failed, "file", "files") + " could not be read"
	}
	if s.Nature == cachedir.Network || r.Bytes == 0 {
		return failed
	}
	from := "from the device"
	if r.Disk < r.Bytes {
		from = units.Percent(float64(r.Disk), float64(r.Bytes)) + " from the device, the rest from memory"
	}
	return joined(from, failed)
}
