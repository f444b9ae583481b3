package monitor

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
)

// A Token is a password for the answers of a Server; "": none. It does not print itself.
type Token string

// String is what a log message shows of a Token.
func (Token) String() string { return "[token]" }

// GoString is as String.
func (Token) GoString() string { return "[token]" }

const (
	leastToken = 16
	mostToken  = 1024
)

// ParseToken returns the token in a text, without the white space around it. The error does not have the text.
func ParseToken(text string) (Token, error) {
	text = strings.TrimSpace(text)
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' {
			return "", errors.New("the token must be one word of printable ASCII characters, as head -c 24 /dev/urandom | base64 prints")
		}
	}
	if len(text) < leastToken || len(text) > mostToken {
		return "", fmt.Errorf("the token has %d characters: give %d to %d, as head -c 24 /dev/urandom | base64 prints", len(text), leastToken, mostToken)
	}
	return Token(text), nil
}

// ReadToken returns the token in a file.
func ReadToken(path string) (Token, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 2*mostToken))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	token, err := ParseToken(string(text))
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return token, nil
}

// guard decides who may read.
type guard struct {
	token   Token
	isLocal bool // the address is of this machine alone
}

// wrap returns a handler that answers only who may read.
func (g guard) wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET", http.StatusMethodNotAllowed)
		case g.isLocal && !isLocalHost(r.Host):
			http.Error(w, "this address is for programs on the same machine: use 127.0.0.1 or localhost", http.StatusForbidden)
		case g.token != "" && !g.isAllowed(r):
			w.Header().Set("WWW-Authenticate", `Basic realm="lcache: the token is the password, under any name", charset="UTF-8"`)
			http.Error(w, "this needs the token of --metrics-token-file", http.StatusUnauthorized)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// forPeople is wrap for answers with paths and names of jobs: at an address that other machines reach, they need a token to be set.
func (g guard) forPeople(h http.Handler) http.Handler {
	if g.isLocal || g.token != "" {
		return g.wrap(h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "The page shows names of files and jobs: at an address that other machines reach, it needs --metrics-token-file.", http.StatusForbidden)
	})
}

// isAllowed reports whether a request has the token: as a bearer token, or as the password of any user, for browsers.
func (g guard) isAllowed(r *http.Request) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		_, given, ok = r.BasicAuth()
	}
	got, want := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(g.token)) // of equal length, so that the time of a comparison says nothing
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1 && ok
}

// isLocalHost reports whether a Host header names this machine as programs here do. A web page elsewhere can give its own name the address 127.0.0.1, and would
// then read the answers.
func isLocalHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	return host == "localhost" || net.ParseIP(host) != nil
}
