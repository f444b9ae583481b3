package s3test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Serve starts a server on a free loopback address and returns the address when the server answers. If another
// process takes the address first, Serve tries another one. The server stops at the end of the test.
func Serve(t testing.TB, command func(address string) *exec.Cmd) string {
	t.Helper()
	address, stop := serve(t, command)
	t.Cleanup(stop)
	return address
}

func serve(t testing.TB, command func(address string) *exec.Cmd) (address string, stop func()) {
	t.Helper()
	var trouble error
	for range 5 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		l.Close()
		if stop, trouble = begin(command(address), address); trouble == nil {
			return address, stop
		}
	}
	t.Fatal(trouble)
	return "", nil
}

// begin starts a server on an address. stop kills it, and may be called again.
func begin(cmd *exec.Cmd, address string) (stop func(), err error) {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	stop = func() { cmd.Process.Kill(); <-ended }
	if !answers(address, ended) {
		stop()
		return nil, fmt.Errorf("a server does not start: %s", said.String())
	}
	return stop, nil
}

// Kill ends the gateway at once, like kill -9.
func (g *Gateway) Kill() { g.stop() }

// Restart starts a killed gateway again, on its address and with its objects.
func (g *Gateway) Restart() error {
	for range 100 { // a connection of another process may have the port for a moment
		stop, err := begin(g.command(g.address), g.address)
		if err == nil {
			g.stop = stop
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("the gateway does not start again")
}

// answers waits until a server accepts connections. It returns false if the server ends before, or after a minute.
func answers(address string, ended <-chan struct{}) bool {
	for range 6000 {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			select {
			case <-ended: // the port belonged to another process
				return false
			default:
				return true
			}
		}
		select {
		case <-ended:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return false
}
