package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

func TestCommandName(t *testing.T) {
	for _, c := range []struct {
		command []string
		want    string
	}{
		{[]string{"python", "train.py"}, "train.py"},
		{[]string{"/usr/bin/torchrun", "--nproc-per-node", "8", "src/train.py", "--config", "x.yaml"}, "train.py"},
		{[]string{"./job.py"}, "job.py"},
		{[]string{"/opt/bin/train", "--fast"}, "train"},
	} {
		if got := commandName(c.command); got != c.want {
			t.Errorf("%v: got %q, want %q", c.command, got, c.want)
		}
	}
}

// TestInterruptedListing: before the command runs, a signal ends lcache itself.
func TestInterruptedListing(t *testing.T) {
	s := catch()
	defer s.stop()
	ctx, release := s.cancelling(context.Background())
	syscall.Kill(os.Getpid(), syscall.SIGUSR1) // means nothing yet
	last := syscall.SIGHUP
	if signal.Ignored(last) { // these tests run under nohup
		last = syscall.SIGTERM
	}
	syscall.Kill(os.Getpid(), last)
	<-ctx.Done()
	release()
	ended := new(ExitError)
	if err := s.interrupted(fmt.Errorf("list: %w", context.Canceled)); !errors.As(err, &ended) || ended.Code != 128+int(last) {
		t.Errorf("got %v", err)
	}
	other := errors.New("disk on fire")
	if err := s.interrupted(other); err != other {
		t.Errorf("got %v", err)
	}
}

func TestChildEnvironment(t *testing.T) {
	got := strings.Join(ChildEnvironment([]string{"PATH=/bin", "LCACHE_CACHE=/mine", "LCACHE_IO=pread", "LCACHE_DIRECT=0", "LCACHE_IOX=1"}), " ")
	if want := "PATH=/bin LCACHE_IO=pread LCACHE_DIRECT=0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
