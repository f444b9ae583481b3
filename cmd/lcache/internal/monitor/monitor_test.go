package monitor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"lcache/cmd/lcache/internal/monitor"
	"lcache/internal/disk/blockio"
	"lcache/internal/disk/offheap"
	"lcache/internal/serve/status"
	"lcache/internal/testenv"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, testenv.Count{What: "bytes outside the heap", Now: offheap.Mapped}, testenv.Count{What: "registered bytes", Now: blockio.Registered}))
}

// listen starts a server on a free port, which is shut down with the test.
func listen(t *testing.T, o monitor.Options) *monitor.Server {
	t.Helper()
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	s, err := monitor.Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// get returns the code and the text of an answer. change may change the request.
func get(t *testing.T, url string, change func(*http.Request)) (int, string) {
	t.Helper()
	ask, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(ask)
	}
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func document() status.Document {
	return status.Document{Schema: 1, Cache: status.Cache{State: "normal", Devices: []status.Device{{Dir: "/a", State: "normal"}, {Dir: "/b", State: "normal"}}}, Jobs: []status.Job{{Name: "train", Hits: 1}}, Totals: status.Totals{Hits: 1}}
}

func always(s status.Document) func() (status.Document, error) {
	return func() (status.Document, error) { return s, nil }
}

func TestListen(t *testing.T) {
	s := listen(t, monitor.Options{})
	addr := strings.TrimSuffix(strings.TrimPrefix(s.URL(), "http://"), monitor.MetricsPath)
	want := fmt.Sprintf("address already in use by process %d: choose another --metrics", os.Getpid())
	if _, err := monitor.Listen(monitor.Options{Addr: addr, Logger: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("twice: %v, want %s", err, want)
	}
	every, err := monitor.Listen(monitor.Options{Addr: "0.0.0.0:0", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if host, _, _ := net.SplitHostPort(strings.TrimPrefix(strings.TrimSuffix(every.URL(), monitor.MetricsPath), "http://")); host != "localhost" {
		t.Errorf("on all addresses: %s", every.URL())
	}
	for range 2 {
		if err := every.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	}
	var none *monitor.Server
	if err := none.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestShutdownWaits: a scrape that has begun ends before Shutdown does, so what Shutdown is followed by may close what status reads.
func TestShutdownWaits(t *testing.T) {
	s, err := monitor.Listen(monitor.Options{Addr: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	entered, leave, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	asked := false
	s.Add("", func() (status.Document, error) {
		close(entered)
		<-leave
		asked = true
		return document(), nil
	})
	go func() {
		defer close(over)
		if answer, err := http.Get(s.URL()); err == nil {
			io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
	}()
	<-entered
	done := make(chan error)
	go func() { done <- s.Shutdown(context.Background()) }()
	select {
	case err := <-done:
		t.Errorf("ended during a scrape: %v", err)
	default:
	}
	close(leave)
	if err := <-done; err != nil || !asked {
		t.Errorf("%v, asked %v", err, asked)
	}
	<-over
	http.DefaultClient.CloseIdleConnections()
}

// TestListenNamesTheHolder: the error of an address in use names the process that listens there, whichever of its addresses that process has.
func TestListenNamesTheHolder(t *testing.T) {
	for _, c := range []struct{ held, wanted string }{
		{"127.0.0.1", "127.0.0.1"},
		{"127.0.0.1", ""},
		{"0.0.0.0", "127.0.0.1"},
		{"[::1]", "[::1]"},
		{"", "127.0.0.1"},
		{"", "[::1]"},
	} {
		held, err := net.Listen("tcp", c.held+":0")
		if err != nil {
			t.Logf("skipped: this machine has no address %s: %v", c.held, err)
			continue
		}
		_, port, _ := net.SplitHostPort(held.Addr().String())
		s, err := monitor.Listen(monitor.Options{Addr: c.wanted + ":" + port, Logger: slog.New(slog.DiscardHandler)})
		used := new(monitor.InUseError)
		if !errors.As(err, &used) || used.Pid != os.Getpid() {
			t.Errorf("%s is held and %s wanted: %v, want process %d", held.Addr(), c.wanted, err, os.Getpid())
		}
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		held.Close()
	}
	if _, err := monitor.Listen(monitor.Options{Addr: "192.0.2.1:0", Logger: slog.New(slog.DiscardHandler)}); errors.As(err, new(*monitor.InUseError)) {
		t.Errorf("an address of another machine: %v", err)
	}
}
