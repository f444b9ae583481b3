package attach

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/errcode"
	"lcache/internal/jsonbytes"
	"lcache/internal/serve/status"
	"lcache/internal/usage"
)

// The part of docs/protocol.md that a Client speaks.
const (
	protocolVersion = 1
	frameHello      = 1
	frameStatus     = 6
	frameStop       = 14
	frameDiagnose   = 23
	frameJSON       = 129
	frameOK         = 133
	frameError      = 255
	frameMost       = 16 << 20
	clientDeadline  = 10 * time.Second // of a server that the user named
)

// FoundDeadline is how long a registered server may take for an answer. A server that is stopped or hangs must not keep the others' answers from the user.
const FoundDeadline = 3 * time.Second

// A Client is one connection to a server, which does not stop for want of clients while the connection is open. It is not for concurrent use.
type Client struct {
	conn     net.Conn
	in       *bufio.Reader
	path     string
	deadline time.Duration // of each answer
	request  uint32
	info     status.Hello
}

// Dial connects to the server at path, which the user named, and tells it the name of the program that asks. The server may be another user's: see otherServer.
func Dial(path, name string) (*Client, error) { return dial(path, name, clientDeadline, otherServer) }

// DialFound is Dial for a socket that lcache found, in a cache or in the registry. Its server must be this user's, or root's.
func DialFound(path, name string) (*Client, error) {
	return dial(path, name, clientDeadline, ownServer)
}

func dial(path, name string, deadline time.Duration, check func(path string, uid int) error) (*Client, error) {
	conn, err := dialLong(path)
	info, statErr := os.Stat(path)
	switch {
	case err != nil && statErr == nil && info.IsDir():
		return nil, fmt.Errorf("%s is a directory: name the socket in it, %s", path, SocketOf([]string{path}))
	case errors.Is(err, fs.ErrNotExist):
		return nil, errcode.Errorf(errcode.NoServer, "no server at %s: start one with lcache serve --cache DIR", path)
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, errcode.Errorf(errcode.NoServer, "the server at %s is gone: start it again with lcache serve --cache DIR", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, errcode.Errorf(errcode.Untrusted, "the server at %s is another user's, and you may not connect: see lcache serve --help, --socket-group", path)
	case err != nil:
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	if err := checkServer(conn, path, check); err != nil {
		conn.Close()
		return nil, err
	}
	c := &Client{conn: conn, in: bufio.NewReader(conn), path: path, deadline: deadline}
	hello, err := jsonbytes.Marshal(map[string]any{"protocol": protocolVersion, "client": name})
	if err == nil {
		err = c.ask(frameHello, hello, &c.info)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// DialRegistered connects to all servers in a registry that answer, except for those at sockets that skip has. It asks all of them at once. silent
// describes servers that run and do not answer in time.
func DialRegistered(dir, name string, skip func(socket string) bool) (clients []*Client, silent []string, err error) {
	entries, err := Registered(dir)
	if err != nil {
		return nil, nil, err
	}
	entries = slices.DeleteFunc(entries, func(e Entry) bool { return skip(e.Socket) })
	found, errs := make([]*Client, len(entries)), make([]error, len(entries))
	var all sync.WaitGroup
	for i, e := range entries {
		all.Go(func() { found[i], errs[i] = dial(e.Socket, name, FoundDeadline, ownServer) })
	}
	all.Wait()
	for i, e := range entries {
		switch {
		case errs[i] == nil:
			clients = append(clients, found[i])
		case IsSilent(errs[i]):
			silent = append(silent, described(e.Socket, e.PID))
		}
	}
	return clients, silent, nil
}

// IsSilent reports whether an error says that a server did not answer in time, or accepts no connections.
func IsSilent(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.EAGAIN)
}

// String describes the server.
func (c *Client) String() string { return described(c.path, c.info.Pid) }

func described(socket string, pid int) string {
	return fmt.Sprintf("the server at %s (process %d)", usage.Name(socket), pid)
}

// dialLong connects to a socket whose path may be longer than the 107 bytes of a socket address. For a longer path it opens the directory.
func dialLong(path string) (net.Conn, error) {
	if len(path) <= 107 {
		return net.DialTimeout("unix", path, clientDeadline)
	}
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(dir)
	return net.DialTimeout("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path)), clientDeadline)
}

// SocketOf is where a cache's server listens if nothing else is said.
func SocketOf(cache []string) string { return filepath.Join(cache[0], "lcache.sock") }

// Path is where the server listens.
func (c *Client) Path() string { return c.path }

// Info returns the server's description of itself.
func (c *Client) Info() status.Hello { return c.info }

// Close ends the connection.
func (c *Client) Close() { c.conn.Close() }

// Status asks for the status document. It returns the bytes of the answer, and the decoded document.
func (c *Client) Status() (raw json.RawMessage, s status.Document, err error) {
	if err := c.ask(frameStatus, nil, &raw); err != nil {
		return nil, s, err
	}
	if err := jsonbytes.Unmarshal(raw, &s); err != nil {
		return nil, s, fmt.Errorf("status from %s: %w", c.path, err)
	}
	return raw, s, nil
}

// CanDiagnose reports whether the server answers Diagnose: a server of an earlier version does not, and no server answers other users than its own and root.
func (c *Client) CanDiagnose() bool { return slices.Contains(c.info.Features, "diagnose") }

// Diagnose asks for the diagnosis of the server's process.
func (c *Client) Diagnose() (d status.Diagnosis, err error) {
	return d, c.ask(frameDiagnose, nil, &d)
}

// Stop asks this run of the server to end cleanly. It returns when the server has agreed.
func (c *Client) Stop() error {
	if !slices.Contains(c.info.Features, "stop") {
		return fmt.Errorf("the server at %s is a part of the program that started it, or of an earlier version: end process %d itself", c.path, c.info.Pid)
	}
	return c.ask(frameStop, []byte(c.info.Server), nil)
}

// ask sends one request and reads its answer. It does not receive the descriptor in the answer to HELLO: the kernel drops ancillary data at a
// plain read.
func (c *Client) ask(kind byte, body []byte, answer any) error {
	c.conn.SetDeadline(time.Now().Add(c.deadline))
	c.request++
	frame := binary.LittleEndian.AppendUint32(nil, uint32(8+len(body)))
	frame = append(frame, protocolVersion, kind, 0, 0)
	frame = binary.LittleEndian.AppendUint32(frame, c.request)
	if _, err := c.conn.Write(append(frame, body...)); err != nil {
		// A server that refuses a client answers and closes, perhaps before the request is sent.
		if told := new(toldError); errors.As(c.answer(answer), &told) {
			return told
		}
		return fmt.Errorf("ask server at %s: %w", c.path, err)
	}
	return c.answer(answer)
}

// toldError is an error that a server answered.
type toldError struct{ path, message string }

// Code returns the code of the error.
func (*toldError) Code() errcode.Code { return errcode.ServerError }

func (e *toldError) Error() string { return fmt.Sprintf("server at %s: %s", e.path, e.message) }

func (c *Client) answer(to any) error {
	var head [12]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return fmt.Errorf("answer from server at %s: %w", c.path, err)
	}
	length, kind := binary.LittleEndian.Uint32(head[:]), head[5]
	if length < 8 || length > frameMost {
		return errcode.Errorf(errcode.ServerError, "answer from %s has a length of %d: that is not an lcache server", c.path, length)
	}
	body := make([]byte, length-8)
	if _, err := io.ReadFull(c.in, body); err != nil {
		return fmt.Errorf("answer from server at %s: %w", c.path, err)
	}
	switch {
	case kind == frameError:
		var said struct {
			Message string `json:"message"`
		}
		if jsonbytes.Unmarshal(body, &said) != nil || said.Message == "" {
			said.Message = "an error without a message"
		}
		return &toldError{c.path, said.Message}
	case head[4] != protocolVersion:
		return errcode.Errorf(errcode.ServerError, "server at %s speaks protocol %d, this lcache %d: use the same version for both", c.path, head[4], protocolVersion)
	case to == nil && kind == frameOK && binary.LittleEndian.Uint32(head[8:]) == c.request:
		return nil
	case to == nil || kind != frameJSON || binary.LittleEndian.Uint32(head[8:]) != c.request:
		return errcode.Errorf(errcode.ServerError, "server at %s answered another question (type %d): that is not an lcache server", c.path, kind)
	}
	if err := jsonbytes.Unmarshal(body, to); err != nil {
		return fmt.Errorf("answer from server at %s: %w", c.path, err)
	}
	return nil
}
