//go:build !race

// The race detector has memory of its own for each byte.

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"lcache/internal/store/ingest"
)

// formula is a bucket that computes its listings. Its value is the number of keys, of 30 bytes each, in 1,000 folders after the prefix.
type formula int

const formulaFolders = 1000

func (n formula) key(i int) string {
	each := (int(n) + formulaFolders - 1) / formulaFolders
	return fmt.Sprintf("set/f%05d/%018d.jpeg", i/each, i)
}

func (n formula) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("list-type") != "2" {
		http.NotFound(w, r)
		return
	}
	io.WriteString(w, `<?xml version="1.0"?><ListBucketResult><EncodingType>url</EncodingType>`)
	defer io.WriteString(w, `</ListBucketResult>`)
	most, _ := strconv.Atoi(q.Get("max-keys"))
	if q.Get("delimiter") != "" {
		for f := range formulaFolders {
			fmt.Fprintf(w, "<CommonPrefixes><Prefix>set/f%05d/</Prefix></CommonPrefixes>", f)
		}
		return
	}
	from := 0
	if after := q.Get("start-after"); after != "" {
		from = sort.Search(int(n), func(i int) bool { return n.key(i) > after })
	}
	end := min(from+most, int(n))
	fmt.Fprintf(w, "<IsTruncated>%t</IsTruncated>", end < int(n))
	var b strings.Builder
	for i := from; i < end; i++ {
		fmt.Fprintf(&b, `<Contents><Key>%s</Key><Size>%d</Size><ETag>"%032x"</ETag></Contents>`, n.key(i), 1000+i%1000, i)
	}
	io.WriteString(w, b.String())
}

// listingMemory returns the maximum memory of an ingest that lists a number of keys and reads none of them, in bytes.
func listingMemory(t *testing.T, keys int) int64 {
	t.Helper()
	srv := httptest.NewServer(formula(keys))
	defer srv.Close()
	s := newStage(t)
	cmd, errs := s.command("exec env AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_EC2_METADATA_DISABLED=true lcache ingest --json --no-prefill --memory 2GB --budget 1GB --source s3://formula/set/ --cache cache --s3-region x --s3-endpoint-url " + srv.URL)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	most, done := make(chan int64), make(chan struct{})
	go func() { // not the usage from wait4, which counts the process from before its exec
		high := int64(0)
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-tick.C:
				high = max(high, highWater(cmd.Process.Pid))
			case <-done:
				tick.Stop()
				most <- high
				return
			}
		}
	}()
	err := cmd.Wait()
	close(done)
	high := <-most
	var r ingest.Report
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &r)
	}
	if err != nil || r.Samples != keys || r.Classes != formulaFolders {
		t.Fatalf("%d samples in %d classes, %v: %s", r.Samples, r.Classes, err, errs)
	}
	return high
}

// highWater is the most memory that a process had, in bytes; 0: it is gone.
func highWater(pid int) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	kb, _ := strconv.ParseInt(strings.Fields(rest + " 0")[0], 10, 64)
	return kb << 10
}

// TestListingOfMillions holds the memory of a whole ingest to some bytes a key. $LCACHE_LISTED_KEYS measures another number of them; ten million must stay within 1 GB.
func TestListingOfMillions(t *testing.T) {
	if n, err := strconv.Atoi(os.Getenv("LCACHE_LISTED_KEYS")); err == nil {
		high := listingMemory(t, n)
		if t.Logf("%d keys: at most %.2f GB", n, float64(high)/1e9); n >= 1e6 && high > int64(n)*100 {
			t.Errorf("more than 100 bytes a key")
		}
		return
	}
	const few, many, most = 50_000, 250_000, 110
	if each := (listingMemory(t, many) - listingMemory(t, few)) / (many - few); each > most {
		t.Errorf("a key takes %d bytes of an ingest, want at most %d", each, most)
	} else {
		t.Logf("a key takes %d bytes of an ingest", each)
	}
}
