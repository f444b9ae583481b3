package cache

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

// Links says what is served of the samples that are reached through links that leave the source.
type Links struct {
	Shared bool  // users other than this process's may connect
	Follow *bool // as the user said; nil: they are served, but not to other users
}

// SourceOptions are those that later reads of the source need.
func (j *Record) SourceOptions() source.Options {
	return source.Options{Exts: j.Exts, Flat: j.Flat, Group: j.Group, NoFollowLinks: !j.FollowLinks}
}

// CheckLinks refuses to serve what is reached through links that leave the source to other users, unless the user said that they may
// have it: such a link can lead to whatever this process may read. beneath says that reads must not leave the source.
func (j *Record) CheckLinks(l Links) (beneath bool, err error) {
	allowed := !l.Shared || j.FollowGiven
	if l.Follow != nil {
		allowed = *l.Follow
	}
	switch n := j.OutsideLinks; {
	case !j.FollowLinks:
		return true, nil
	case allowed:
		return false, nil
	case n == 0:
		return true, nil
	case l.Follow != nil:
		return true, fmt.Errorf("%d samples of %s are reached through links that leave it: leave out --no-follow-links, or put the files themselves into the source", n, j.Source)
	default:
		return true, fmt.Errorf("%d samples of %s are reached through links that leave it, and other users may connect (--socket-group, --socket-mode): give --follow-links if they may have those too, or put the files themselves into the source",
			n, j.Source)
	}
}

// CheckLinks refuses a cache by its links before anything is opened. A record that can't be read is an error when the cache is opened.
func CheckLinks(dirs []string, l Links) error {
	dirs, err := CleanDirs(dirs)
	if err != nil {
		return err
	}
	j, err := ReadRecord(dirs[0])
	if err != nil {
		return nil
	}
	_, err = j.CheckLinks(l)
	return err
}

// HoldToLinks opens the source again if reads must not leave it.
func (c *Cache) HoldToLinks(l Links) error {
	beneath, err := c.Record.CheckLinks(l)
	if err != nil || beneath == !c.Record.FollowLinks {
		return err
	}
	err = c.Source.Close()
	c.Source = nil
	so := c.Record.SourceOptions()
	so.NoFollowLinks = true
	return errors.Join(err, c.OpenSource(c.Record.Source, so))
}
