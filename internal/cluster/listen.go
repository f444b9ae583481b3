package cluster

import (
	"context"
	"errors"
	"fmt"
	"lcache/internal/errcode"
	"lcache/internal/usage"
	"log"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

// A bind is where a member listens.
type bind struct {
	ip   string
	port int // for samples; 0: any; -1: the first free of Ports
}

// parseListen reads --listen. Without a key it allows the loopback interface only.
func parseListen(text string, hasKey bool) (b bind, err error) {
	bad := func(why string) (bind, error) {
		return b, usage.Errorf("--listen %q: %s; give an address of this machine, or a network like 10.0.0.0/8, and :PORT if needed", text, why)
	}
	host := text
	b.port = -1
	if i := strings.LastIndexByte(text, ':'); i >= 0 && !strings.HasSuffix(text, "]") {
		if strings.Count(text, ":") > 1 && !strings.HasPrefix(text, "[") {
			return bad("an IPv6 address needs brackets")
		}
		n, err := strconv.Atoi(text[i+1:])
		if err != nil || n < 0 || n > 65534 {
			return bad("the port must be a number from 0 to 65534")
		}
		host, b.port = text[:i], n
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	switch {
	case host == "" && hasKey:
		b.ip = "0.0.0.0"
	case host == "":
		b.ip = "127.0.0.1"
	case strings.Contains(host, "/"):
		if b.ip, err = addressIn(host); err != nil {
			return bad(err.Error())
		}
	default:
		ip := net.ParseIP(host)
		if ip == nil {
			return bad("it is not an address")
		}
		b.ip = ip.String()
	}
	if !hasKey && !net.ParseIP(b.ip).IsLoopback() {
		return b, usage.Errorf("--listen %s needs --cluster-key: without a key lcache listens on the loopback interface (127.0.0.0/8) only; make one with lcache cluster key > FILE", text)
	}
	return b, nil
}

// advertised returns the address that others are given; "": memberlist chooses it.
func advertised(ctx context.Context, host string, b bind, r resolver) (string, error) {
	bad := func(why string) (string, error) {
		return "", usage.Errorf("--advertise %q: %s; give the address or the name by which other machines reach this one", host, why)
	}
	if host == "" {
		if ip := net.ParseIP(b.ip); ip.IsUnspecified() && b.ip != "0.0.0.0" {
			return bad("it is needed with --listen [::]")
		}
		return "", nil
	}
	found, err := r.LookupHost(ctx, host)
	if err != nil || len(found) == 0 {
		return bad("this machine can't find that host")
	}
	ip := net.ParseIP(found[0])
	switch {
	case ip == nil || ip.IsUnspecified():
		return bad("it is not the address of a machine")
	case net.ParseIP(b.ip).IsLoopback() && !ip.IsLoopback():
		return bad("the server listens on the loopback interface only")
	}
	return ip.String(), nil
}

// addressIn returns this machine's first address in a network.
func addressIn(cidr string) (string, error) {
	_, network, err := net.ParseCIDR(cidr)
	if err != nil {
		return "", errors.New("it is not a network")
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && network.Contains(n.IP) {
			return n.IP.String(), nil
		}
	}
	return "", errors.New("this machine has no address in that network")
}

// listen opens the ports of a member.
func listen(m *Member, b bind) error {
	g := &gossip{member: m, log: m.o.Logger, seen: map[string]seenMember{}, lost: map[string]lostMember{}, missed: map[string]time.Time{}, warned: map[string]time.Time{}}
	m.gossip = g // memberlist asks for the announcement while it is created
	ports := Ports
	switch {
	case b.port == 0:
		ports = []int{-1}
	case b.port > 0:
		ports = []int{b.port}
	}
	var err error
	for _, p := range ports {
		if err = g.open(b.ip, p); err == nil {
			return nil
		}
		// memberlist has the system's error as text only.
		if !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
			return fmt.Errorf("join the cluster: listen on %s: %w", net.JoinHostPort(b.ip, strconv.Itoa(p+1)), err)
		}
	}
	return fmt.Errorf("join the cluster: %w", errcode.New(errcode.PortInUse,
		fmt.Sprintf("ports %d to %d of %s are taken: stop one of the programs that have them, or give --listen HOST:PORT", ports[0], ports[len(ports)-1]+1, b.ip)))
}

// open opens a port for samples, and the next one for gossip; -1: any two.
func (g *gossip) open(ip string, port int) (err error) {
	if g.data, err = net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(max(port, 0)))); err != nil {
		return err
	}
	if g.list, err = memberlist.Create(g.config(ip, port+1)); err != nil {
		g.data.Close()
	}
	return err
}

func (g *gossip) config(ip string, port int) *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.Name = g.member.id
	c.BindAddr, c.BindPort = ip, port
	c.AdvertiseAddr, c.AdvertisePort = g.member.o.Advertise, port
	c.Delegate, c.Events, c.Alive = g, g, g
	c.Logger = log.New(memberlistLog{g}, "", 0)
	c.TCPTimeout = 2 * time.Second
	// A death is seen in 4 s: two probes and the time of suspicion. An idle member wakes up for each probe and each round of gossip.
	c.ProbeInterval, c.ProbeTimeout, c.SuspicionMult, c.SuspicionMaxTimeoutMult = time.Second, 300*time.Millisecond, 2, 3
	c.PushPullInterval = 15 * time.Second
	c.EnableCompression = false
	if k := g.member.o.Key; k != nil {
		c.SecretKey, c.Label = k.gossip, k.label
	}
	return c
}
