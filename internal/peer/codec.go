package peer

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// codec passes the bytes of frames through. To send, a message is a mem.BufferSlice, which gRPC frees when it is sent; what arrives goes into a
// *frame, whose receiver frees it.
type codec struct{}

// frame is a message that arrived.
type frame struct{ mem.BufferSlice }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(mem.BufferSlice)
	if !ok {
		return nil, fmt.Errorf("a message of type %T", v)
	}
	return b, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("a message of type %T", v)
	}
	data.Ref()
	f.BufferSlice = data
	return nil
}

func (codec) Name() string { return "lcache-raw" }

// plain returns a message of one slice, which the caller gives away.
func plain(b []byte) mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(b)} }
