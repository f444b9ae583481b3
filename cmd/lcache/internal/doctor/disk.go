package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/disk/blockio"
	"lcache/internal/errcode"
)

const (
	fileName    = ".lcache-doctor-*"
	mostFile    = 1 << 30  // bytes of the measurement's file
	leastFile   = 64 << 20 // a smaller file would fit into a controller's memory
	bufferBytes = 32 << 20 // room for 16 reads and 16 writes of 1 MiB
	fillTime    = 3 * time.Second
)

// patience is how long after its end a measurement waits for the transfers in flight. Tests shorten it.
var patience = 10 * time.Second

// errHung is the error of a device that does not complete a transfer.
var errHung = errcode.New(errcode.Hung, "the device does not answer: look at the kernel's log (dmesg)")

// DiskOptions of OpenDisk.
type DiskOptions struct {
	Dir    string
	Bytes  int64  // of the file; 0: 1 GiB, or 5 % of the free space if that is less
	Engine string // as in blockio.Options
	Direct string // "off" measures through the page cache, for tests; otherwise OpenDisk fails without O_DIRECT
	Logger *slog.Logger

	fill time.Duration // for which the file is filled at most; 0: 3 s
}

// A Disk is a file on the device below a directory, filled and ready to be read and written in any pattern. The file has no name: the kernel
// removes it when the process ends.
type Disk struct {
	io   *blockio.IO
	file *blockio.File
	mem  []byte
	size int64 // bytes of the file that are filled
	hung bool  // the device does not complete transfers
	most int64 // bytes that a stream of one measurement moves before it ends; 0: any
}

// OpenDisk makes the file and fills it with random bytes, for at most 3 s: a slow device gets a smaller one.
func OpenDisk(ctx context.Context, o DiskOptions) (d *Disk, err error) {
	size, err := fileSize(o)
	if err != nil {
		return nil, err
	}
	io, err := blockio.Open(blockio.Options{Engine: o.Engine, Direct: o.Direct, Depth: 64, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	d = &Disk{io: io}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("measure the device of %s: %w", o.Dir, err), d.Close())
			d = nil
		}
	}()
	if d.mem, err = blockio.Alloc(bufferBytes); err != nil {
		return d, err
	}
	rand.Read(d.mem) // so that a device that compresses is not faster than it would be with samples
	if err = io.Register(d.mem); err != nil {
		return d, err
	}
	if err = d.create(o.Dir); err != nil {
		return d, err
	}
	if !d.file.Direct() && o.Direct != "off" {
		return d, errors.New("no O_DIRECT there, so the page cache would be measured")
	}
	if err = d.file.Allocate(size); err != nil {
		return d, err
	}
	return d, d.fill(ctx, size, cmp.Or(o.fill, fillTime))
}

// fileSize returns the bytes of the file.
func fileSize(o DiskOptions) (int64, error) {
	if o.Bytes > 0 {
		return o.Bytes, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(o.Dir, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", o.Dir, err)
	}
	size := boundedSize(st.Bavail * uint64(st.Bsize))
	if size < leastFile {
		return 0, errTooSmall
	}
	return size, nil
}

// boundedSize returns the file's size for some bytes of free space, in whole MiB.
func boundedSize(free uint64) int64 { return int64(min(mostFile, free/20)) &^ (1<<20 - 1) }

// create opens a new file and removes its name at once.
func (d *Disk) create(dir string) error {
	made, err := os.CreateTemp(dir, fileName)
	if err != nil {
		return err
	}
	defer os.Remove(made.Name())
	if err := made.Close(); err != nil {
		return err
	}
	d.file, err = d.io.OpenFile(made.Name(), false)
	return err
}

// fill writes the file: the kernel would read reserved blocks without the device.
func (d *Disk) fill(ctx context.Context, size int64, within time.Duration) error {
	_, written, err := d.run(ctx, within, size, Stream{Size: 1 << 20, Depth: 16, Write: true})
	if err != nil {
		return err
	}
	if d.size = written; d.size < min(size, int64(float64(leastFile/2)*min(1, within.Seconds()))) {
		return fmt.Errorf("only %d bytes could be written in %v: too slow for a cache", written, within)
	}
	synced := make(chan error, 1)
	go func() { synced <- d.file.Sync() }()
	select {
	case err := <-synced:
		return err
	case <-time.After(patience):
		d.hung = true
		return errHung
	}
}

// Bytes is the size of the file.
func (d *Disk) Bytes() int64 { return d.size }

// Engine returns the name of the I/O engine, as in the status document, and whether transfers bypass the page cache.
func (d *Disk) Engine() (name string, direct bool) { return d.io.Name(), d.file.Direct() }

// Close frees the file and the memory. Memory of transfers that a hung device has not completed stays.
func (d *Disk) Close() error {
	var err error
	if d.file != nil {
		err = d.file.Close()
	}
	if d.hung {
		go func() { // may take as long as the device hangs
			d.io.Close()
			blockio.Free(d.mem)
		}()
		return err
	}
	if d.mem != nil {
		err = errors.Join(err, d.io.Unregister(d.mem))
	}
	err = errors.Join(err, d.io.Close())
	if d.mem != nil {
		err = errors.Join(err, blockio.Free(d.mem))
	}
	return err
}
