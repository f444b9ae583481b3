package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"lcache/cmd/lcache/internal/launch"
	"lcache/internal/jsonbytes"
)

// rank is one reading process.
type rank struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// seen is the answer of a rank for an epoch.
type seen struct {
	Epoch, Rank, Samples int
	Bytes                int64
	Seconds              float64
	Wrong                []string
	Wrongs               int
}

// oneEpoch starts an epoch on all ranks at once and waits for the last.
func oneEpoch(ranks []*rank, epoch int) ([]seen, float64, error) {
	began := time.Now()
	answers, err := askRanks[seen](ranks, strconv.Itoa(epoch))
	if err != nil {
		return nil, 0, fmt.Errorf("epoch %d: %w", epoch, err)
	}
	return answers, time.Since(began).Seconds(), nil
}

// askRanks sends one request to all ranks at once and returns the answer of each rank. If a rank fails, its process ends, and the other ranks
// wait for that process no longer than their deadline.
func askRanks[T any](ranks []*rank, request string) ([]T, error) {
	answers := make([]T, len(ranks))
	var all errgroup.Group
	for i, r := range ranks {
		all.Go(func() error {
			if _, err := fmt.Fprintln(r.in, request); err != nil {
				return fmt.Errorf("rank %d: %w", i, err)
			}
			if err := r.answer(&answers[i]); err != nil {
				return fmt.Errorf("rank %d: %w", i, err)
			}
			return nil
		})
	}
	return answers, all.Wait()
}

func (d *demo) startRank(ctx context.Context, socket string, i int) (*rank, error) {
	cmd := exec.CommandContext(ctx, d.o.Python, d.reader, "--socket", socket, "--source", d.o.Source, "--ext", strings.Join(d.o.Exts, ","), "--seed", "0",
		"--rank", strconv.Itoa(i), "--world", strconv.Itoa(d.o.World), "--batch-size", strconv.Itoa(d.o.BatchSize))
	cmd.Env = append(launch.ChildEnvironment(os.Environ()), "PYTHONPATH="+d.o.Client, "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stderr = d.o.Logs
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start rank %d: %w", i, err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start rank %d: %w", i, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start rank %d: %w", i, err)
	}
	return &rank{cmd, in, bufio.NewReader(out)}, nil
}

func (r *rank) answer(to any) error {
	line, err := r.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the reader ended early, its own message is above: %w", err)
	}
	return jsonbytes.Unmarshal(line, to)
}

// close ends the process: without input it closes its job and exits.
func (r *rank) close() {
	if r != nil {
		r.in.Close()
		r.cmd.Wait()
	}
}
