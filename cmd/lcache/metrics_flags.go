package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/pflag"

	"lcache/cmd/lcache/internal/launch"
	"lcache/cmd/lcache/internal/monitor"
)

// metricsFlags are the flags of metrics and of the page, of serve and of run.
type metricsFlags struct {
	launch.Metrics
	tokenFile string
	page      bool
}

// tokenVariable has the token itself. No flag takes it, because every user of the machine can read the command lines of its processes.
const tokenVariable = "LCACHE_METRICS_TOKEN"

// pageAddress is the address of the page without --metrics: a free port of this machine alone.
const pageAddress = "127.0.0.1:0"

func addMetricsFlags(f *pflag.FlagSet, o *metricsFlags, isLenient func() bool) {
	f.Var(address{&o.Addr, isLenient}, "metrics", "HTTP `ADDR` for metrics and a page, like :9400 (default: none)")
	f.StringVar(&o.tokenFile, "metrics-token-file", "", "`FILE` with a token that readers of --metrics need")
	f.StringVar(&o.File, "metrics-file", "", "`FILE` for the metrics at the end, for node_exporter")
}

// finish reads the token, and checks that the file of the metrics can be written. If isLenient, an unusable token is a reason to serve no metrics, and no
// error: the reason is returned.
func (o *metricsFlags) finish(isLenient bool) (reason string, err error) {
	if o.page && o.Addr == "" {
		o.Addr = pageAddress
	}
	text := os.Getenv(tokenVariable)
	os.Unsetenv(tokenVariable) // no process that lcache starts gets it
	switch {
	case o.tokenFile != "" && text != "":
		err = usagef("--metrics-token-file and %s: give one of them", tokenVariable)
	case o.tokenFile != "":
		if o.Token, err = monitor.ReadToken(o.tokenFile); err != nil {
			err = usagef("--metrics-token-file: %w", err)
		}
	case text != "":
		if o.Token, err = monitor.ParseToken(text); err != nil {
			err = usagef("%s: %w", tokenVariable, err)
		}
	}
	if err != nil && isLenient {
		o.Addr = ""
		return "no metrics: " + err.Error(), nil
	}
	if err == nil && o.File != "" {
		if o.File, err = filepath.Abs(o.File); err == nil {
			if info, statErr := os.Stat(filepath.Dir(o.File)); statErr != nil || !info.IsDir() {
				err = usagef("--metrics-file %s: its folder does not exist: make it, or give another FILE", o.File)
			}
		}
	}
	return "", err
}

// address is a flag of an address to listen on. isLenient may be nil; where it returns true, the flag takes any text, and listening there fails.
type address struct {
	to        *string
	isLenient func() bool
}

func (a address) String() string { return "" }
func (a address) Type() string   { return "ADDR" }
func (a address) Set(text string) error {
	_, port, err := net.SplitHostPort(text)
	n, portErr := strconv.Atoi(port)
	switch {
	case a.isLenient != nil && a.isLenient():
	case err != nil:
		return errors.New("must be host:port or :port, like :9400 or 127.0.0.1:0")
	case portErr != nil || n < 0 || n > 65535:
		return errors.New("its port must be a number from 0 to 65535")
	}
	*a.to = text
	return nil
}
