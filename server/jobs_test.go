package server

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"lcache/internal/serve/status"
)

// named sends JOB and returns the connection's number.
func (c *client) named(token string) int {
	c.t.Helper()
	said, err := json.Marshal(jobRequest{token})
	if err != nil {
		c.t.Fatal(err)
	}
	f := c.ask(typeJob, said)
	var got struct{ Job int }
	if err := json.Unmarshal(f.body, &got); err != nil || f.kind != typeJSON {
		c.t.Fatalf("JOB was answered with type %d: %s", f.kind, f.body)
	}
	return got.Job
}

// askOf is ask for a job.
func (c *client) askOf(job int, kind uint8, body []byte) frame {
	c.t.Helper()
	c.next++
	b := begin(nil, kind, c.next)
	binary.LittleEndian.PutUint16(b[6:], uint16(job))
	c.write(finish(append(b, body...), 0))
	f := c.receive()
	if f.request != c.next {
		c.t.Fatalf("got an answer to request %d, asked %d", f.request, c.next)
	}
	return f
}

// indicesOf are the samples of a BATCH.
func indicesOf(t testing.TB, f frame) []uint32 {
	t.Helper()
	if f.kind != typeBatch {
		t.Fatalf("got type %d, want a BATCH: %s", f.kind, f.body)
	}
	n := int(binary.LittleEndian.Uint32(f.body[8:]))
	r := body{b: f.body[batchHead+12*n:]}
	return r.column(uint64(n))
}

// Two jobs of one connection have their own orders. A CHUNK without a job still gets the recipe's order.
func TestJobsOfOneConnection(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	c := attach(t, s, "")
	if !slices.Contains(c.info.Features, "jobs") {
		t.Fatalf("features %v", c.info.Features)
	}
	one, two := c.named("one"), c.named("two")
	if one != 1 || two != 2 || c.named("one") != one {
		t.Fatalf("numbers %d and %d", one, two)
	}
	recipe := indicesOf(t, c.ask(typeChunk, columnOf(0, 0, 0)))
	for job, want := range map[int][]uint32{one: {5, 3}, two: {8, 1}} {
		if f := c.askOf(job, typePush, columnOf(0, 0, 0, 0, 1, 2, want[0], want[1])); f.kind != typeOK {
			t.Fatalf("PUSH was answered with type %d: %s", f.kind, f.body)
		}
	}
	for job, want := range map[int][]uint32{one: {5, 3}, two: {8, 1}, 0: recipe} {
		if got := indicesOf(t, c.askOf(job, typeChunk, columnOf(0, 0, 0))); !slices.Equal(got, want) {
			t.Errorf("job %d: %v, want %v", job, got, want)
		}
	}
	if got := indicesOf(t, c.askOf(two, typeGet, getBody(4, 4))); !slices.Equal(got, []uint32{4, 4}) {
		t.Errorf("GET of a job: %v", got)
	}
	var status status.Document
	if err := json.Unmarshal(c.ask(typeStatus, nil).body, &status); err != nil {
		t.Fatal(err)
	}
	delivered := map[string]int64{}
	for _, j := range status.Jobs {
		delivered[j.ID] = j.SamplesDelivered
	}
	if delivered["one"] != 2 || delivered["two"] != 4 || delivered[""] != int64(2*len(recipe)) {
		t.Errorf("samples delivered: %v", delivered)
	}
}

// A job number that no answer to JOB gave, a request without a job, and an invalid body end the connection.
func TestJobsBroken(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	for _, tt := range []struct {
		name string
		job  int
		kind uint8
		body []byte
		want string
	}{
		{"no JOB before", 2, typeChunk, columnOf(0, 0, 0), "frame flags 0x2"},
		{"a request of no job", 1, typeStatus, nil, "frame flags 0x1"},
		{"no JSON", 0, typeJob, []byte("token"), "JOB"},
	} {
		c := attach(t, s, "")
		c.named("a")
		f := c.askOrEnd(tt.job, tt.kind, tt.body)
		if f.Kind != "protocol" || !strings.Contains(f.Message, tt.want) {
			t.Errorf("%s: %+v, want a protocol error with %q", tt.name, f, tt.want)
		}
	}
}

// Tokens and their number are bounded, and the connection stays.
func TestJobsBounded(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	c := attach(t, s, "")
	for _, token := range []string{"", strings.Repeat("x", 129)} {
		said, _ := json.Marshal(jobRequest{token})
		if f := c.ask(typeJob, said); kindOf(f) != "argument" {
			t.Errorf("a token of %d bytes: %s", len(token), f.body)
		}
	}
	for k := range mostJobs {
		c.named(strings.Repeat("y", k+1))
	}
	said, _ := json.Marshal(jobRequest{"one more"})
	if f := c.ask(typeJob, said); kindOf(f) != "argument" {
		t.Errorf("job %d of one connection: %s", mostJobs+1, f.body)
	}
	indicesOf(t, c.askOf(mostJobs, typeChunk, columnOf(0, 0, 0)))
}

// askOrEnd sends a frame and takes the ERROR that follows it, under whatever number.
func (c *client) askOrEnd(job int, kind uint8, body []byte) failure {
	c.t.Helper()
	c.next++
	b := begin(nil, kind, c.next)
	binary.LittleEndian.PutUint16(b[6:], uint16(job))
	c.write(finish(append(b, body...), 0))
	return c.fails()
}
