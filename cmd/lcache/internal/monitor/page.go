package monitor

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"lcache/internal/jsonbytes"
	"net/http"
	"strings"
	"sync"
	"time"

	"lcache/cmd/lcache/internal/overview"
)

// The page is one HTML document, with its script, its style and uPlot (1.6.32, MIT licence, as npm has it) inside. It loads nothing else.
var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string
	//go:embed uplot/uplot.js
	uplotJS string
	//go:embed uplot/uplot.css
	uplotCSS string
)

// Paths of the page and of its data.
const (
	PagePath   = "/"
	streamPath = "/stream"
)

const (
	mostViewers = 16
	frameTime   = time.Second     // between two documents to viewers
	viewerTime  = 5 * time.Second // in which a viewer must take a document
)

// document is one update of the page.
type document struct {
	Time    int64    `json:"time"`    // Unix milliseconds
	Ready   bool     `json:"ready"`   // all sources are listed
	Sample  float64  `json:"sample"`  // seconds between two points
	Servers []*shown `json:"servers"` // in the order in which they were added
}

// page has the histories of all servers, and the viewers.
type page struct {
	server *Server
	html   []byte
	policy string // Content-Security-Policy

	stop chan struct{} // closed by Shutdown
	done chan struct{} // closed when watch has ended

	mu        sync.Mutex // guards the fields that follow
	histories []*history
	frame     []byte        // the last document
	changed   chan struct{} // closed when frame changes
	viewers   int
	wanted    chan struct{} // has a value when a viewer has come
}

func newPage(s *Server) *page {
	p := &page{server: s, stop: make(chan struct{}), done: make(chan struct{}), changed: make(chan struct{}), wanted: make(chan struct{}, 1)}
	style := uplotCSS + pageCSS
	p.html = []byte(strings.NewReplacer("{{style}}", style, "{{uplot}}", uplotJS, "{{script}}", pageJS).Replace(pageHTML))
	p.policy = fmt.Sprintf("default-src 'none'; script-src %s %s; style-src %s; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'", hashOf(uplotJS), hashOf(pageJS), hashOf(style))
	return p
}

// hashOf returns a text's hash for a Content-Security-Policy.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func (p *page) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", p.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	w.Write(p.html)
}

// watch takes a point of each server every sampleTime, and makes a document every frameTime while somebody looks.
func (p *page) watch() {
	defer close(p.done)
	tick := time.NewTicker(frameTime)
	defer tick.Stop()
	last := time.Time{}
	for {
		sampled := time.Since(last) >= sampleTime
		if sampled {
			last = time.Now()
		}
		if sampled || p.isWatched() {
			p.look(sampled)
		}
		select {
		case <-tick.C:
		case <-p.wanted:
		case <-p.stop:
			return
		}
	}
}

func (p *page) isWatched() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.viewers > 0
}

// look asks each server for its status, and shows it.
func (p *page) look(sampled bool) {
	caches, isReady := p.server.all()
	d := document{Time: time.Now().UnixMilli(), Ready: isReady, Sample: sampleTime.Seconds(), Servers: []*shown{}}
	for i, c := range caches {
		now, err := c.status()
		p.mu.Lock()
		if i == len(p.histories) {
			p.histories = append(p.histories, &history{})
		}
		h := p.histories[i]
		if err == nil && sampled {
			h.add(now, time.Now())
		}
		v, points := h.view(now), h.points
		if err != nil {
			v = overview.View{Before: h.before, Now: h.before}
		}
		s := show(c.name, v, points)
		p.mu.Unlock()
		if err != nil {
			s.Error = "The server does not answer: " + err.Error()
		}
		d.Servers = append(d.Servers, &s)
	}
	frame, err := jsonbytes.Marshal(d)
	if err != nil { // a number that JSON lacks
		frame = []byte(`{"servers":[]}`)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frame = frame
	close(p.changed)
	p.changed = make(chan struct{})
}

// next returns the last document, and a channel that is closed when there is another one.
func (p *page) next() (frame []byte, changed chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frame, p.changed
}

// past returns the points of all servers.
func (p *page) past() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := [][][]*float64{}
	for _, h := range p.histories {
		all = append(all, columns(h.points))
	}
	text, err := jsonbytes.Marshal(all)
	if err != nil {
		return []byte("[]")
	}
	return text
}

// enter adds a viewer; false: there are too many.
func (p *page) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.viewers == mostViewers {
		return false
	}
	p.viewers++
	select {
	case p.wanted <- struct{}{}:
	default:
	}
	return true
}

func (p *page) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.viewers--
}

// stream sends documents as server-sent events: first "past" with all points, then "now" again and again.
func (p *page) stream(w http.ResponseWriter, r *http.Request) {
	_, changed := p.next()
	if !p.enter() {
		http.Error(w, fmt.Sprintf("%d people look at this page already", mostViewers), http.StatusServiceUnavailable)
		return
	}
	defer p.leave()
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	send := func(kind string, text []byte) bool {
		_ = out.SetWriteDeadline(time.Now().Add(viewerTime))
		_, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, text)
		return err == nil && out.Flush() == nil
	}
	for first := true; ; first = false {
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-p.stop:
			return
		}
		var frame []byte
		frame, changed = p.next()
		if first && !send("past", p.past()) || !send("now", frame) {
			return
		}
	}
}
