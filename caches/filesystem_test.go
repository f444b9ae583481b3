package caches

import "testing"

func TestFileSystem(t *testing.T) {
	for magic, want := range map[int64]struct {
		name   string
		nature Nature
	}{
		0xef53: {"ext4", Local}, 0x58465342: {"xfs", Local}, 0x9123683e: {"btrfs", Copying}, 0x794c7630: {"overlay", Layered}, 0x6969: {"nfs", Network},
		0x01021994: {"tmpfs", RAM}, -0xacb2be: {"cifs", Network}, 0x65735546: {"fuse", User}, 0x01021997: {"9p", User}, 0x1234: {"0x1234", Unknown},
	} {
		if name, nature := FileSystem(magic); name != want.name || nature != want.nature {
			t.Errorf("%#x: %s %s, want %+v", magic, name, nature, want)
		}
	}
}
