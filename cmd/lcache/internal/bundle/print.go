package bundle

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/google/pprof/profile"

	"lcache/internal/usage"
)

// Limits of Print for one member.
const (
	mostLines     = 400
	mostLineRunes = 1000
	mostFunctions = 15
)

// A Printer prints members for people. Their text may come from anybody, so it can't control the terminal, and it is cut if it is long. The documents of one
// server's status differ little, so of each but the first only the lines are printed that differ from the one before.
type Printer struct {
	To io.Writer

	folder string
	before []string // lines of the status document before
}

// Print prints a member.
func (p *Printer) Print(m Member) error {
	out := bufio.NewWriter(p.To)
	fmt.Fprintf(out, "── %s · %s\n", usage.Name(m.Name), humanize.Bytes(uint64(len(m.Data))))
	if strings.HasSuffix(m.Name, ".pb.gz") {
		printProfile(out, m.Data)
	} else {
		lines := p.changes(out, m)
		printText(out, m.Name, lines)
	}
	fmt.Fprintln(out)
	return out.Flush() // errors of a bufio.Writer stay until Flush
}

// changes returns the lines of a member to print.
func (p *Printer) changes(out io.Writer, m Member) []string {
	lines := strings.Split(strings.TrimRight(string(m.Data), "\n"), "\n")
	folder, name, _ := strings.Cut(m.Name, "/")
	if !strings.HasPrefix(name, "status-") {
		return lines
	}
	before := p.before
	if p.before = lines; folder != p.folder {
		p.folder, before = folder, nil
	}
	if len(before) != len(lines) {
		return lines
	}
	var changed []string
	for i, line := range lines {
		if line != before[i] {
			changed = append(changed, line)
		}
	}
	fmt.Fprintf(out, "as the one before, but for %d lines\n", len(changed))
	return changed
}

func printText(out io.Writer, name string, lines []string) {
	for _, line := range lines[:min(len(lines), mostLines)] {
		line = strings.ReplaceAll(strings.TrimRight(line, "\r"), "\t", "    ")
		text := strings.TrimLeft(line, " ")
		indent := line[:min(len(line)-len(text), mostLineRunes)]
		text = usage.Message(text)
		if runes := []rune(text); len(runes) > mostLineRunes {
			text = string(runes[:mostLineRunes]) + " …"
		}
		fmt.Fprintln(out, indent+text)
	}
	if more := len(lines) - mostLines; more > 0 {
		fmt.Fprintf(out, "… %s more lines: tar -xzOf FILE %s\n", humanize.Comma(int64(more)), name)
	}
}

// printProfile prints the functions with the most memory in use, by their last value, and the number of the others.
func printProfile(out *bufio.Writer, data []byte) {
	p, err := readProfile(data)
	if err != nil {
		fmt.Fprintf(out, "not readable as a profile: %s\n", usage.Message(err.Error()))
		return
	}
	value := len(p.SampleType) - 1
	if value < 0 {
		fmt.Fprintln(out, "a profile without values")
		return
	}
	held := map[string]int64{}
	for _, s := range p.Sample {
		held[allocator(s)] += s.Value[value]
	}
	names := slices.SortedFunc(maps.Keys(held), func(a, b string) int {
		return cmp.Or(cmp.Compare(held[b], held[a]), strings.Compare(a, b))
	})
	fmt.Fprintf(out, "%s, by function; all of it: go tool pprof FILE\n", usage.Message(p.SampleType[value].Type))
	for i, name := range names {
		if i == mostFunctions {
			fmt.Fprintf(out, "… %d more functions\n", len(names)-i)
			break
		}
		fmt.Fprintf(out, "%10s  %s\n", humanize.IBytes(uint64(max(held[name], 0))), usage.Name(name))
	}
}

// allocator returns the function of a sample's innermost frame.
func allocator(s *profile.Sample) string {
	for _, at := range s.Location {
		for _, line := range at.Line {
			if line.Function != nil {
				return line.Function.Name
			}
		}
	}
	return "(unknown)"
}
