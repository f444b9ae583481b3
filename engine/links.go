package engine

import (
	"errors"
	"fmt"

	"lcache/source"
)

// LinkFacts is what job.json says of links. A cache of an earlier version has none of it, and was listed without leaving the source.
type LinkFacts struct {
	FollowLinks  bool `json:"follow_links"`                 // links that leave the source are followed
	FollowGiven  bool `json:"follow_links_given,omitempty"` // because the user said so
	OutsideLinks int  `json:"outside_links"`                // samples that are reached through one
}

// follows is the rule of this listing.
func (in *ingest) follows() bool { return in.o.FollowLinks == nil || *in.o.FollowLinks }

func (in *ingest) linkFacts() LinkFacts {
	return LinkFacts{FollowLinks: in.follows(), FollowGiven: in.o.FollowLinks != nil && *in.o.FollowLinks, OutsideLinks: in.outside}
}

// SourceOptions are those that later reads of the source need.
func (j *Record) SourceOptions() source.Options {
	return source.Options{Exts: j.Exts, Flat: j.Flat, Group: j.Group, NoFollowLinks: !j.FollowLinks}
}

// CheckLinks refuses to serve what is reached through links that leave the source to other users, unless the user said that they may
// have it: such a link can lead to whatever this process may read. beneath says that reads must not leave the source.
func (j *Record) CheckLinks(o Options) (beneath bool, err error) {
	allowed := !o.Shared || j.FollowGiven
	if o.FollowLinks != nil {
		allowed = *o.FollowLinks
	}
	switch n := j.OutsideLinks; {
	case !j.FollowLinks:
		return true, nil
	case allowed:
		return false, nil
	case n == 0:
		return true, nil
	case o.FollowLinks != nil:
		return true, fmt.Errorf("%d samples of %s are reached through links that leave it: leave out --no-follow-links, or put the files themselves into the source", n, j.Source)
	default:
		return true, fmt.Errorf("%d samples of %s are reached through links that leave it, and other users may connect (--socket-group, --socket-mode): give --follow-links if they may have those too, or put the files themselves into the source",
			n, j.Source)
	}
}

// checkLinksEarly is checkLinks before anything is opened. What can't be read is told when it is opened.
func checkLinksEarly(o Options) error {
	dirs, err := CleanDirs(o.Dirs)
	if err != nil {
		return err
	}
	j, err := ReadRecord(dirs[0])
	if err != nil {
		return nil
	}
	_, err = j.CheckLinks(o)
	return err
}

// HoldToLinks opens the source again if reads must not leave it.
func (c *Cache) HoldToLinks(o Options) error {
	beneath, err := c.Record.CheckLinks(o)
	if err != nil || beneath == !c.Record.FollowLinks {
		return err
	}
	err = c.Source.Close()
	c.Source = nil
	so := c.Record.SourceOptions()
	so.NoFollowLinks = true
	return errors.Join(err, c.OpenSource(c.Record.Source, so))
}
