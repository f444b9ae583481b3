package main

import (
	"bytes"
	"strings"
	"testing"

	"lcache/internal/store/ingest"
	"lcache/source"
)

func TestAskedText(t *testing.T) {
	many := source.Requests{Requests: 1291758, Retries: 204, Hedges: 31}
	for name, c := range map[string]struct {
		report ingest.Report
		want   string
	}{
		"a folder":       {ingest.Report{ReadBytes: 148e9, ReadSeconds: 552}, ""},
		"read":           {ingest.Report{ReadBytes: 148e9, ReadSeconds: 552, SourceWait: 497.6, Remote: &many}, "  asked     1,291,758 requests · 204 retries · 31 hedges · each reader waited 8 min 18 s of 9 min 12 s for the source\n"},
		"one of each":    {ingest.Report{ReadBytes: 1, ReadSeconds: 0.5, SourceWait: 0.2, Remote: &source.Requests{Requests: 1, Retries: 1, Hedges: 1}}, "  asked     1 request · 1 retry · 1 hedge · each reader waited 0.2 s of 0.5 s for the source\n"},
		"only listed":    {ingest.Report{Remote: &source.Requests{Requests: 1346}}, "  asked     1,346 requests · 0 retries · 0 hedges\n"},
		"asked nothing":  {ingest.Report{Already: 9, Remote: &source.Requests{}}, "  asked     0 requests · 0 retries · 0 hedges\n"},
		"nothing waited": {ingest.Report{ReadBytes: 1, ReadSeconds: 3, Remote: &source.Requests{Requests: 2}}, "  asked     2 requests · 0 retries · 0 hedges · each reader waited 0 s of 3.0 s for the source\n"},
	} {
		var b bytes.Buffer
		writeIngest(&b, &c.report)
		got := ""
		for line := range strings.Lines(b.String()) {
			if strings.HasPrefix(line, "  asked ") {
				got += line
			}
		}
		if got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

func TestCostText(t *testing.T) {
	for _, c := range []struct {
		cost ingest.Cost
		want string
	}{
		{ingest.Cost{Listed: 1346, Gets: 1290412, Samples: 1281167, Bytes: 148e9}, "cost      1,281,167 samples · 148 GB · 1,346 requests for the listing · 1,290,412 GETs to read them"},
		{ingest.Cost{Listed: 1, Gets: 1, Samples: 1, Bytes: 5}, "cost      1 sample · 5 B · 1 request for the listing · 1 GET to read them"},
		{ingest.Cost{Listed: 1}, "cost      0 samples · 0 B · 1 request for the listing · 0 GETs to read them"},
		{ingest.Cost{Samples: 1281167, Bytes: 148e9}, "cost      1,281,167 samples · 148 GB"}, // a folder
		{ingest.Cost{Listed: 147, Gets: 35300, Bytes: 148e9, Shards: 147, Index: 35300},
			"cost      147 shards · 148 GB · 147 requests so far · about 35,300 GETs for their indexes, which are kept · about 35,300 GETs more to read the samples · so each shard is read twice the first time"},
		{ingest.Cost{Listed: 1, Gets: 1, Bytes: 5e6, Shards: 1, Index: 1},
			"cost      1 shard · 5 MB · 1 request so far · about 1 GET for their indexes, which are kept · about 1 GET more to read the samples · so each shard is read twice the first time"},
	} {
		if got := costText(c.cost); got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	}
}
