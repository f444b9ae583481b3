package launch

import (
	"fmt"
	"log/slog"

	"lcache/cmd/lcache/internal/monitor"
	"lcache/cmd/lcache/internal/prometheus"
	"lcache/internal/serve/status"
)

// Metrics says where the metrics of servers go.
type Metrics struct {
	Addr  string        // host:port to listen on for scrapes and for the page; "": none
	Token monitor.Token // that readers need; "": none
	File  string        // written at the end; "": none
}

// listenMetrics opens the address for metrics. Without one it returns a nil Server, which does nothing. It is called before the listing, so that an
// address in use is an error at once.
func listenMetrics(o Metrics, logger *slog.Logger) (*monitor.Server, error) {
	if o.Addr == "" {
		return nil, nil
	}
	return monitor.Listen(monitor.Options{Addr: o.Addr, Token: o.Token, Logger: logger})
}

// write writes the metrics of the last documents to File, by the names of their sources.
func (o Metrics) write(last map[string]status.Document) error {
	if o.File == "" || len(last) == 0 {
		return nil
	}
	var c prometheus.Collector
	for name, s := range last {
		if s.Schema != 0 { // else the server never answered
			c.Add(name, func() (status.Document, error) { return s, nil })
		}
	}
	if err := c.WriteFile(o.File); err != nil {
		return fmt.Errorf("write the metrics to %s: %w", o.File, err)
	}
	return nil
}
