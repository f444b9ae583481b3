package attach

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"lcache/cmd/lcache/internal/attach/attachtest"
)

func TestClient(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	attachtest.Answer(t, path, attachtest.Frame(1, frameJSON, 1, `{"name": "train", "batch_size": 64}`), attachtest.Frame(1, frameJSON, 2, `{"pid": 7, "unknown": 1}`))
	c, err := Dial(path, "a test")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, s, err := c.Status()
	if err != nil {
		t.Fatal(err)
	}
	if string(raw) != `{"pid": 7, "unknown": 1}` {
		t.Errorf("raw document %s", raw)
	}
	if c.info.Name != "train" || c.info.BatchSize != 64 || s.Pid != 7 {
		t.Errorf("got %+v and pid %d", c.info, s.Pid)
	}
}

func TestClientRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer []byte
		want   string
	}{
		{"an error", attachtest.Frame(1, frameError, 1, `{"kind": "denied", "message": "not your server"}`), "server at PATH: not your server"},
		{"an error of another version", attachtest.Frame(9, frameError, 1, `{"message": "old"}`), "server at PATH: old"},
		{"an error that is none", attachtest.Frame(1, frameError, 1, `[`), "server at PATH: an error without a message"},
		{"another version", attachtest.Frame(9, frameJSON, 1, `{}`), "server at PATH speaks protocol 9, this lcache 1: use the same version for both"},
		{"another request", attachtest.Frame(1, frameJSON, 2, `{}`), "server at PATH answered another question (type 129): that is not an lcache server"},
		{"another type", attachtest.Frame(1, 130, 1, `{}`), "server at PATH answered another question (type 130): that is not an lcache server"},
		{"too long", []byte("\xff\xff\xff\xffSSH-2.0-x"), "answer from PATH has a length of 4294967295: that is not an lcache server"},
		{"too short", []byte("\x07\x00\x00\x00\x01\x81\x00\x00\x01\x00\x00\x00"), "answer from PATH has a length of 7: that is not an lcache server"},
		{"nothing", nil, "answer from server at PATH: EOF"},
		{"half", attachtest.Frame(1, frameJSON, 1, `{}`)[:13], "answer from server at PATH: unexpected EOF"},
		{"no JSON", attachtest.Frame(1, frameJSON, 1, `x`), "answer from server at PATH: invalid character 'x' looking for beginning of value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			attachtest.Answer(t, path, c.answer)
			_, err := Dial(path, "a test")
			if err == nil {
				t.Fatal("no error")
			}
			if got := strings.ReplaceAll(err.Error(), path, "PATH"); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestClientWithoutServer(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 100))
	gone := filepath.Join(t.TempDir(), "gone")
	l, err := net.Listen("unix", gone)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	for path, want := range map[string]string{
		filepath.Join(long, "s"):           "no server at PATH: start one with lcache serve --cache DIR",
		filepath.Join(t.TempDir(), "none"): "no server at PATH: start one with lcache serve --cache DIR",
		gone:                               "the server at PATH is gone: start it again with lcache serve --cache DIR",
	} {
		_, err := Dial(path, "a test")
		if err == nil || strings.ReplaceAll(err.Error(), path, "PATH") != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
