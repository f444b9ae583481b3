package cluster

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"

	"lcache/internal/usage"
)

// A Where says how a member finds the others. The zero value is that of a member that waits for others to find it.
type Where struct {
	Seeds []Seed // addresses of members
	Name  string // a name in the DNS that has the addresses of all members; "": none
	Port  int    // of Name; 0: the first ones are tried

	IsFound bool // by the variables of a launcher: a host without an address is tried again, and no error
}

// A Seed is the address of a member that may be running.
type Seed struct {
	Host string
	Port int // for samples; 0: the first ones are tried
}

// Listen is the word for a member that waits for others.
const Listen = "listen"

// whereForm lists the forms of WHERE.
const whereForm = "give auto, listen, dns:NAME or addresses like node1,10.0.0.2:7746,[fe80::1]:7746"

// ParseWhere reads WHERE of --cluster. Auto must have been resolved before. Errors are usage errors.
func ParseWhere(text string) (w Where, err error) {
	if text == Listen {
		return w, nil
	}
	if name, ok := strings.CutPrefix(text, "dns:"); ok {
		s, err := parseSeed(name)
		return Where{Name: s.Host, Port: s.Port}, err
	}
	for _, address := range strings.Split(text, ",") {
		s, err := parseSeed(strings.TrimSpace(address))
		if err != nil {
			return w, err
		}
		if !slices.Contains(w.Seeds, s) {
			w.Seeds = append(w.Seeds, s)
		}
	}
	return w, nil
}

// parseSeed reads HOST, HOST:PORT, [IPv6] or [IPv6]:PORT.
func parseSeed(text string) (s Seed, err error) {
	bad := func(why string) (Seed, error) {
		return Seed{}, usage.Errorf("%q is not an address: %s; %s", text, why, whereForm)
	}
	host, port := text, ""
	switch {
	case strings.HasPrefix(text, "["):
		end := strings.IndexByte(text, ']')
		if end < 0 || net.ParseIP(text[1:end]) == nil {
			return bad("no IPv6 address in brackets")
		}
		host, port = text[1:end], text[end+1:]
		if port != "" && port[0] != ':' {
			return bad("something other than :PORT comes after the brackets")
		}
	case strings.Count(text, ":") > 1:
		return bad("an IPv6 address needs brackets")
	default:
		if i := strings.IndexByte(text, ':'); i >= 0 {
			host, port = text[:i], text[i:]
		}
	}
	if host == "" || strings.ContainsAny(host, " \t/@") {
		return bad("no host")
	}
	if port != "" {
		n, err := strconv.Atoi(port[1:])
		if err != nil || n < 1 || n > 65535-1 {
			return bad("the port must be a number from 1 to 65534")
		}
		s.Port = n
	}
	s.Host = host
	return s, nil
}

// Ports are the ports for samples that a member tries, in this order. Gossip has the next one of each.
var Ports = []int{7746, 7748, 7750, 7752, 7754, 7756, 7758, 7760}

// joinPorts is how many of Ports are tried of a seed without a port.
const joinPorts = 4

// A resolver looks up the addresses of a name, as net.Resolver does.
type resolver interface {
	LookupHost(ctx context.Context, host string) (addresses []string, err error)
}

// check looks up all hosts once. A DNS name may have no address yet. Without a key it allows this machine only.
func (w Where) check(ctx context.Context, r resolver, hasKey bool) error {
	needKey := func() error {
		return usage.Errorf("--cluster %s needs --cluster-key: make a key with lcache cluster key > FILE, and copy it to all machines", w)
	}
	if w.Name != "" && !hasKey {
		return needKey()
	}
	for _, s := range w.Seeds {
		found, err := r.LookupHost(ctx, s.Host)
		if err != nil && w.IsFound {
			continue
		}
		if err != nil {
			return usage.Errorf("--cluster %s: this machine can't find the address of that host (%v); %s", s.Host, err, whereForm)
		}
		for _, a := range found {
			if !hasKey && !net.ParseIP(a).IsLoopback() {
				return needKey()
			}
		}
	}
	return nil
}

// addresses returns the gossip addresses to try, each as host:port. Hosts that can't be looked up now are left out.
func (w Where) addresses(ctx context.Context, r resolver) (found []string) {
	seeds := w.Seeds
	if w.Name != "" {
		seeds = []Seed{{w.Name, w.Port}}
	}
	for _, s := range seeds {
		ports := Ports[:joinPorts]
		if s.Port != 0 {
			ports = []int{s.Port}
		}
		hosts, err := r.LookupHost(ctx, s.Host)
		if err != nil {
			continue
		}
		for _, h := range hosts {
			for _, p := range ports {
				found = append(found, net.JoinHostPort(h, strconv.Itoa(p+1)))
			}
		}
	}
	return found
}

// String returns WHERE as text for people.
func (w Where) String() string {
	if w.Name != "" {
		return "dns:" + w.Name
	}
	if len(w.Seeds) == 0 {
		return Listen
	}
	var all []string
	for _, s := range w.Seeds {
		if s.Port == 0 {
			all = append(all, s.Host)
		} else {
			all = append(all, net.JoinHostPort(s.Host, strconv.Itoa(s.Port)))
		}
	}
	return strings.Join(all, ",")
}
