package scenario

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

// Bounds of a file: a scenario has some twenty lines.
const (
	mostScenarios = 1000
	longestLine   = 64 << 10
)

// ReadFile reads the scenarios of a file.
func ReadFile(path string) ([]Scenario, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the scenario: %w", err)
	}
	defer f.Close()
	return Read(f, path)
}

// Read parses scenarios. A line in brackets begins one and names it; "[name : other]" begins it as a copy of another one,
// built in or above it in the file. Every other line is "key = value"; what follows a # is a comment. Errors say file, line
// and key.
func Read(r io.Reader, file string) (all []Scenario, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestLine)
	seen, begun := map[string]int{}, 0
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if head, ok := strings.CutPrefix(text, "["); ok {
			if err := complete(all, seen, file, begun); err != nil {
				return nil, err
			}
			s, err := begin(head, all)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, n, err)
			}
			all, begun = append(all, s), n
			clear(seen)
			continue
		}
		if err := setLine(all, seen, text, n); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no scenario: begin one with a line like [ours]", file)
	}
	return all, complete(all, seen, file, begun)
}

// begin is a scenario as its first line says.
func begin(head string, all []Scenario) (s Scenario, err error) {
	head, ok := strings.CutSuffix(head, "]")
	if !ok {
		return s, fmt.Errorf("[%s: the closing bracket is missing", head)
	}
	name, base, copies := strings.Cut(head, ":")
	name, base = strings.TrimSpace(name), strings.TrimSpace(base)
	switch {
	case name == "":
		return s, fmt.Errorf("[%s]: the name is missing", head)
	case len(all) >= mostScenarios:
		return s, fmt.Errorf("[%s]: more than %d scenarios", name, mostScenarios)
	}
	for _, other := range all {
		if other.Name == name {
			return s, fmt.Errorf("[%s] is there twice", name)
		}
	}
	if !copies {
		return Scenario{Name: name, Title: name}, nil
	}
	for _, other := range append(Builtin(), all...) {
		if other.Name == base {
			other.Name, other.Title = name, name
			return other, nil
		}
	}
	return s, fmt.Errorf("[%s : %s]: scenario %s does not exist; name one of this file or a built-in one: %s", name, base, base, strings.Join(Names(), ", "))
}

func setLine(all []Scenario, seen map[string]int, text string, n int) error {
	name, value, ok := strings.Cut(text, "=")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	switch {
	case !ok:
		return fmt.Errorf("%q: write key = value", text)
	case len(all) == 0:
		return fmt.Errorf("%s: begin a scenario first, with a line like [ours]", name)
	case seen[name] > 0:
		return fmt.Errorf("%s was set in line %d", name, seen[name])
	}
	seen[name] = n
	return all[len(all)-1].Set(name, value)
}

// complete refuses a scenario, the last one, that lacks what nothing can stand in for.
func complete(all []Scenario, seen map[string]int, file string, begun int) error {
	if len(all) == 0 {
		return nil
	}
	s := all[len(all)-1]
	for _, must := range []struct {
		key string
		ok  bool
	}{
		{"workers", s.Machine.Workers > 0}, {"compute", s.Machine.Compute > 0}, {"pfs", len(s.Machine.PFS) > 0}, {"samples", s.Workload.Samples > 0},
		{"sample_mean", s.Workload.MeanMB > 0}, {"batch", s.Workload.Batch > 0}, {"epochs", s.Workload.Epochs > 0},
	} {
		if line := seen[must.key]; !must.ok && line > 0 {
			return fmt.Errorf("%s:%d: %s is 0, and must be more", file, line, must.key)
		}
		if !must.ok {
			return fmt.Errorf("%s:%d: [%s] lacks %s", file, begun, s.Name, must.key)
		}
	}
	return nil
}
