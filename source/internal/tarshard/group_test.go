package tarshard

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func members(names ...string) (list []Member) {
	for i, name := range names {
		list = append(list, Member{Name: name, Off: int64(512 * (2*i + 1)), Size: int64(i)})
	}
	return list
}

func shape(samples []Sample) string {
	var b strings.Builder
	for _, s := range samples {
		b.WriteString(s.Key + ":")
		for _, p := range s.Parts {
			fmt.Fprintf(&b, " %s=%d", p.Ext, p.Size)
		}
		b.WriteString("; ")
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func TestGroup(t *testing.T) {
	for _, c := range []struct{ names, want, again string }{
		{"a.jpg a.cls b.jpg", "a: jpg=0 cls=1; b: jpg=2", ""},
		{"d/a.jpg a.jpg ./a.CLS", "d/a: jpg=0; a: jpg=1 cls=2", ""},
		{"a.seg.png __x__/y.jpg a.png README a.json", "a: seg.png=0 png=2 json=4", ""},
		{"a.jpg a.jpg", "a: jpg=1", "a.jpg"},
		{"a.jpg a.cls b.jpg a.jpg", "a: jpg=3 cls=1; b: jpg=2", "a.jpg"},
		{"a.jpg b.jpg a.jpg b.jpg a.jpg", "a: jpg=4; b: jpg=3", "a.jpg b.jpg a.jpg"},
		{"", "", ""},
	} {
		got, again, err := Group("x.tar", members(strings.Fields(c.names)...), func(string) bool { return true })
		if err != nil || shape(got) != c.want || strings.Join(again, " ") != c.again {
			t.Errorf("%s: %s, again %q, %v; want %s", c.names, shape(got), again, err, c.want)
		}
	}
	got, _, err := Group("x.tar", members("a.txt", "a.jpg", "b.txt", "b.jpg"), func(name string) bool { return strings.HasSuffix(name, ".jpg") })
	if err != nil || shape(got) != "a: jpg=1; b: jpg=3" {
		t.Errorf("some members: %s, %v", shape(got), err)
	}
	for names, want := range map[string]string{
		"a.jpg b.jpg a.cls": `shard "x.tar": the members of sample "a" are not adjacent: write the shard with its names sorted`,
		"a.jpg a.JPG":       `shard "x.tar": sample "a" has the part "jpg" twice, as "a.jpg" and as "a.JPG": rename one of them`,
		"a.jpg ./a.jpg":     `shard "x.tar": sample "a" has the part "jpg" twice, as "a.jpg" and as "./a.jpg": rename one of them`,
	} {
		if _, _, err := Group("x.tar", members(strings.Fields(names)...), func(string) bool { return true }); err == nil || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", names, err, want)
		}
	}
}

// TestGroupManyParts: the time for a sample of very many parts grows with their number, not with its square. The
// deadline is a hundred times the usual time.
func TestGroupManyParts(t *testing.T) {
	const parts = 300_000
	list := make([]Member, parts+1)
	for i := range list {
		list[i] = Member{Name: fmt.Sprintf("a.%06d", i), Off: int64(512 * (i + 1))}
	}
	list[parts].Name = list[5].Name
	done := make(chan error, 1)
	go func() {
		samples, again, err := Group("x.tar", list, func(string) bool { return true })
		if err == nil && (len(samples) != 1 || len(samples[0].Parts) != parts || samples[0].Parts[5].Off != list[parts].Off || len(again) != 1) {
			err = fmt.Errorf("%d samples, again %q", len(samples), again)
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("no answer after 60 s")
	}
	list[parts].Name = "a.X00005"
	list[5].Name = "a.x00005"
	if _, _, err := Group("x.tar", list, func(string) bool { return true }); err == nil || !strings.Contains(err.Error(), `has the part "x00005" twice`) {
		t.Errorf("%v, want an error about a part that comes twice", err)
	}
}
