package cluster

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"lcache/internal/usage"
)

// hosts are a resolver's names.
type hosts map[string][]string

func (h hosts) LookupHost(_ context.Context, host string) ([]string, error) {
	if a, ok := h[host]; ok {
		return a, nil
	}
	return nil, errors.New("no such host")
}

func TestWhere(t *testing.T) {
	names := hosts{"node1": {"10.0.0.1"}, "node2": {"10.0.0.2"}, "lcache.ml.svc": {"10.1.0.1", "10.1.0.2"}, "fe80::1": {"fe80::1"}, "10.0.0.9": {"10.0.0.9"}, "localhost": {"127.0.0.1", "::1"}}
	for _, c := range []struct {
		where string
		text  string // "": as given
		want  []string
	}{
		{"listen", "", nil},
		{"node1:7746", "", []string{"10.0.0.1:7747"}},
		{"node1", "", []string{"10.0.0.1:7747", "10.0.0.1:7749", "10.0.0.1:7751", "10.0.0.1:7753"}},
		{"node1:1, node2:2,node1:1", "node1:1,node2:2", []string{"10.0.0.1:2", "10.0.0.2:3"}},
		{"[fe80::1]:7748", "", []string{"[fe80::1]:7749"}},
		{"10.0.0.9:80", "", []string{"10.0.0.9:81"}},
		{"dns:lcache.ml.svc:7746", "dns:lcache.ml.svc", []string{"10.1.0.1:7747", "10.1.0.2:7747"}},
		{"dns:not.yet:7746", "dns:not.yet", nil},
		{"gone:7746,node2:7746", "", []string{"10.0.0.2:7747"}},
	} {
		w, err := ParseWhere(c.where)
		if err != nil {
			t.Errorf("%s: %v", c.where, err)
			continue
		}
		if got := w.addresses(context.Background(), names); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s leads to %v, want %v", c.where, got, c.want)
		}
		if want := c.text; want == "" && w.String() != c.where || want != "" && w.String() != want {
			t.Errorf("%s is shown as %s", c.where, w)
		}
	}
	w, _ := ParseWhere("node1,gone")
	if err := w.check(context.Background(), names, true); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a host without an address: %v", err)
	}
	w.IsFound = true
	if err := w.check(context.Background(), names, true); err != nil {
		t.Errorf("a launcher's host without an address: %v", err)
	}
	for where, hasKey := range map[string]bool{"node1": false, "dns:lcache.ml.svc": false, "dns:not.yet": true, "node1,node2:1": true, "localhost": false, "listen": false} {
		w, _ := ParseWhere(where)
		err := w.check(context.Background(), names, hasKey)
		if isRefused := err != nil; isRefused != (!hasKey && where != "localhost" && where != "listen") || isRefused && !strings.Contains(err.Error(), "lcache cluster key") {
			t.Errorf("%s with a key: %v: %v", where, hasKey, err)
		}
	}
}

func TestBadWhere(t *testing.T) {
	for _, text := range []string{"", ",", "node1,", "fe80::1", "[fe80::1", "[fe80::1]7746", "[node1]:1", "node1:", "node1:0", "node1:65535", "node1:x", "a b", "http://node1:7746", "dns:", "dns:a:b", "dns:fe80::1"} {
		_, err := ParseWhere(text)
		var usageError *usage.Error
		if !errors.As(err, &usageError) || !strings.Contains(err.Error(), "node1,10.0.0.2:7746") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAdvertise(t *testing.T) {
	names := hosts{"gpu-01": {"10.0.0.1"}, "10.0.0.2": {"10.0.0.2"}, "127.0.0.9": {"127.0.0.9"}, "0.0.0.0": {"0.0.0.0"}, "8.8.8.8": {"8.8.8.8"}}
	everywhere, loopback := bind{"0.0.0.0", -1}, bind{"127.0.0.1", -1}
	for _, c := range []struct {
		host string
		bind bind
		want string // "error": a usage error
	}{
		{"", everywhere, ""}, {"", bind{"::", -1}, "error"}, {"gpu-01", bind{"::", -1}, "10.0.0.1"}, {"gpu-01", everywhere, "10.0.0.1"}, {"10.0.0.2", everywhere, "10.0.0.2"},
		{"127.0.0.9", loopback, "127.0.0.9"}, {"8.8.8.8", loopback, "error"}, {"0.0.0.0", everywhere, "error"}, {"gone", everywhere, "error"},
	} {
		got, err := advertised(context.Background(), c.host, c.bind, names)
		var usageError *usage.Error
		if isError := errors.As(err, &usageError); isError != (c.want == "error") || !isError && (got != c.want || err != nil) {
			t.Errorf("%q listening on %s: %q, %v, want %s", c.host, c.bind.ip, got, err, c.want)
		}
	}
}

func TestListen(t *testing.T) {
	for _, c := range []struct {
		listen string
		hasKey bool
		want   bind
	}{
		{"", false, bind{"127.0.0.1", -1}},
		{"", true, bind{"0.0.0.0", -1}},
		{"127.0.0.3", false, bind{"127.0.0.3", -1}},
		{"127.0.0.3:7750", false, bind{"127.0.0.3", 7750}},
		{":0", false, bind{"127.0.0.1", 0}},
		{":7750", true, bind{"0.0.0.0", 7750}},
		{"127.0.0.0/8:7750", false, bind{"127.0.0.1", 7750}},
		{"[::1]:5", false, bind{"::1", 5}},
		{"[::1]", false, bind{"::1", -1}},
	} {
		if got, err := parseListen(c.listen, c.hasKey); err != nil || got != c.want {
			t.Errorf("%q: %+v, %v, want %+v", c.listen, got, err, c.want)
		}
	}
	for text, hasKey := range map[string]bool{"10.0.0.1": false, "0.0.0.0": false, "203.0.113.0/24": true, "x": true, "::1": true, "127.0.0.1:70000": true, "127.0.0.1:": true, "127.0.0.0/99": true} {
		if b, err := parseListen(text, hasKey); err == nil {
			t.Errorf("%q was taken as %+v", text, b)
		}
	}
}
