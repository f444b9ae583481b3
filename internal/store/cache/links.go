package cache

import (
	"errors"

	"lcache/internal/errcode"
	"lcache/source"
)

// LinkFacts is the part of job.json about links. In a cache of an earlier version it is missing: that listing followed no link out of the source.
type LinkFacts struct {
	FollowLinks  bool `json:"follow_links"`                 // links that leave the source are followed
	FollowGiven  bool `json:"follow_links_given,omitempty"` // because of a flag of the user
	OutsideLinks int  `json:"outside_links"`                // samples that are reached through such links
}

// Links are the settings for samples that are reached through links out of the source.
type Links struct {
	Shared bool  // other users may connect
	Follow *bool // the user's flag; nil: they are served, but not to other users
}

// SourceOptions returns the options to open the source with for reads.
func (j *Record) SourceOptions() source.Options {
	return source.Options{Exts: j.Exts, Flat: j.Flat, AllowEmpty: j.AllowEmpty, Group: j.Group, Part: j.FirstPart, Records: j.RecordFlags, Stream: j.Stream, NoRanges: j.NoRanges, NoFollowLinks: !j.FollowLinks, Remote: j.Remote}
}

func (c *Cache) sourceOptions() source.Options {
	o := c.Record.SourceOptions()
	o.Remote = c.remote
	return o
}

// CheckLinks returns an error if other users would be served samples that are reached through links out of the source, unless a flag allows
// it: such a link can lead to any file that this process may read. beneath means that reads must not leave the source.
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
		return true, errcode.Errorf(errcode.OutsideLinks, "%d samples of %s are reached through links that leave it: leave out --no-follow-links, or put the files themselves into the source", n, j.Source)
	default:
		return true, errcode.Errorf(errcode.OutsideLinks, "%d samples of %s are reached through links that leave it, and other users may connect (--socket-group, --socket-mode): give --follow-links if they may have those too, or put the files themselves into the source",
			n, j.Source)
	}
}

// CheckLinks does the check of Record.CheckLinks before the cache is opened. If the record can't be read, it returns nil: opening the cache reports
// that.
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

// HoldToLinks applies CheckLinks, and reopens the source if reads must not leave it.
func (c *Cache) HoldToLinks(l Links) error {
	beneath, err := c.Record.CheckLinks(l)
	if err != nil || beneath == !c.Record.FollowLinks {
		return err
	}
	err = c.Source.Close()
	c.Source = nil
	so := c.sourceOptions()
	so.NoFollowLinks = true
	return errors.Join(err, c.OpenSource(c.Record.Source, so))
}
