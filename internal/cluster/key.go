package cluster

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"lcache/internal/errcode"
	"lcache/internal/usage"
)

// keyBytes is the length of a cluster's secret; its file has it in hexadecimal.
const keyBytes = 32

// A Key has the keys that are derived from a cluster's secret. Its zero value is not valid.
type Key struct {
	gossip    []byte             // AES-256-GCM, of the messages by which members find each other
	label     string             // of those messages: two clusters in one network never mix
	authority ed25519.PrivateKey // signs the certificate of each member
}

// Label names the cluster: members with the same key have the same one. It is no secret, and gossip sends it unencrypted. Without a key it is empty.
func (k *Key) Label() string {
	if k == nil {
		return ""
	}
	return k.label
}

// NewKey returns the text of a new key file.
func NewKey() string {
	b := make([]byte, keyBytes)
	rand.Read(b) // never fails
	return hex.EncodeToString(b) + "\n"
}

// errKey is the class of errors about a key file.
var errKey = errcode.New(errcode.ClusterKey, "it is not a key of a cluster")

// ReadKey reads a key file. It may be a link, as a Secret of Kubernetes is. ReadKey refuses a file that somebody else may read or could have written:
// it must belong to this user or to root, and a group may read it only if it is root's.
func ReadKey(path string) (*Key, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cluster key: %w: make one with lcache cluster key > FILE, and copy it to all machines", err)
	}
	if err != nil {
		return nil, fmt.Errorf("cluster key: %w", err)
	}
	defer f.Close()
	if err := checkKeyFile(f); err != nil {
		return nil, fmt.Errorf("cluster key %s: %w", usage.Name(path), err)
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return nil, fmt.Errorf("cluster key %s: %w", usage.Name(path), err)
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(secret) != keyBytes {
		return nil, fmt.Errorf("cluster key %s: %w: make one with lcache cluster key > FILE", usage.Name(path), errKey)
	}
	return deriveKey(secret), nil
}

func checkKeyFile(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	mode := st.Mode & 0o777
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return errcode.New(errcode.ClusterKey, "it is not a regular file")
	case int(st.Uid) != os.Geteuid() && st.Uid != 0:
		return errcode.New(errcode.ClusterKey, fmt.Sprintf("it belongs to user %d: copy it to a file of your own", st.Uid))
	case mode&0o037 != 0 || mode&0o040 != 0 && st.Uid != 0:
		return errcode.New(errcode.ClusterKey, fmt.Sprintf("other users may read it (mode %04o): run chmod 600 on it", mode))
	}
	return nil
}

// deriveKey derives everything from the secret.
func deriveKey(secret []byte) *Key {
	derive := func(info string, n int) []byte {
		b, err := hkdf.Key(sha256.New, secret, nil, "lcache cluster v1 "+info, n)
		if err != nil { // only if n is too large
			panic(err)
		}
		return b
	}
	return &Key{
		gossip:    derive("gossip", 32),
		label:     "lcache-" + base64.RawURLEncoding.EncodeToString(derive("label", 12)),
		authority: ed25519.NewKeyFromSeed(derive("authority", ed25519.SeedSize)),
	}
}
