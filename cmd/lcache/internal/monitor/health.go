package monitor

import (
	"fmt"
	"net/http"
	"slices"

	"lcache/internal/serve/status"
)

// health answers 200 if every server answers.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	caches, _ := s.all()
	for _, c := range caches {
		if _, err := c.status(); err != nil {
			say(w, http.StatusServiceUnavailable, "A server does not answer.")
			return
		}
	}
	say(w, http.StatusOK, "The process answers.")
}

// ready answers 200 if all sources are listed, and each cache has a device that works.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	caches, isReady := s.all()
	if !isReady {
		say(w, http.StatusServiceUnavailable, "The source is being listed.")
		return
	}
	for _, c := range caches {
		now, err := c.status()
		switch {
		case err != nil:
			say(w, http.StatusServiceUnavailable, "A server does not answer.")
			return
		case !slices.ContainsFunc(now.Cache.Devices, isUsable):
			say(w, http.StatusServiceUnavailable, "No device of the cache works: samples come from the source.")
			return
		}
	}
	say(w, http.StatusOK, "Samples are served.")
}

func isUsable(d status.Device) bool { return d.State != "aside" }

// say answers with one sentence. Everybody may read it, so it names nothing.
func say(w http.ResponseWriter, code int, sentence string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	fmt.Fprintln(w, sentence)
}
