package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"strings"

	"lcache/internal/errcode"
	"lcache/internal/jsonbytes"
)

// Limits of a loader's state.
const (
	mostState      = 1 << 20 // bytes of its file
	mostStateWorld = 1 << 20
	mostStateEpoch = 1 << 20
)

// loaderState is the state_dict of a loader of lcache.torch, as json.dump writes it, or a digest alone.
type loaderState struct {
	Version     int          `json:"v"`
	Seed        *json.Number `json:"seed"` // null: not drawn yet
	Epoch       *int         `json:"epoch"`
	Consumed    *int         `json:"consumed"` // batches of each rank
	World       *int         `json:"world"`
	BatchSize   *int         `json:"batch_size"`  // null: batches have no fixed size
	Before      int          `json:"before"`      // samples of the epoch that were read with another world size or batch size
	Fingerprint *string      `json:"fingerprint"` // of the dataset
	Digest      *string      `json:"order_digest"`
	Bad         *string      `json:"bad"` // digest of the samples that bad= leaves out; null: no list

	onlyDigest bool
}

// readState reads a state from a file. A text that is a digest is a state with that digest and nothing else.
func readState(name string) (s loaderState, err error) {
	if isDigest(name) {
		text := strings.ToLower(name)
		return loaderState{Digest: &text, onlyDigest: true}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return s, fmt.Errorf("read a state: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostState+1))
	if err != nil {
		return s, fmt.Errorf("read a state: %w", err)
	}
	if s, err = parseState(text); err != nil {
		return s, errcode.Errorf(errcode.InputFile, "%s is not a state of lcache's loader: %w; give the file that json.dump(loader.state_dict(), file) wrote", name, err)
	}
	return s, nil
}

func isDigest(text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && len(b) == 32
}

// parseState parses a state and checks its bounds.
func parseState(text []byte) (s loaderState, err error) {
	if len(text) > mostState {
		return s, fmt.Errorf("it has more than %d MiB", mostState>>20)
	}
	var keys map[string]json.RawMessage
	if err := jsonbytes.Unmarshal(text, &keys); err != nil {
		return s, err
	}
	for _, key := range []string{"v", "seed", "epoch", "consumed", "world", "batch_size", "fingerprint", "order_digest"} {
		if _, has := keys[key]; !has {
			return s, fmt.Errorf("it has no %q", key)
		}
	}
	if err := jsonbytes.Unmarshal(text, &s); err != nil {
		return s, err
	}
	switch {
	case s.Version != 1:
		return s, fmt.Errorf("it has version %d, and this lcache reads version 1", s.Version)
	case s.Epoch == nil || s.Consumed == nil || s.World == nil:
		return s, errors.New("epoch, consumed and world must be numbers")
	case *s.Epoch < 0 || *s.Consumed < 0 || s.Before < 0 || *s.World < 1 || *s.World > mostStateWorld || *s.Epoch > mostStateEpoch || s.BatchSize != nil && *s.BatchSize < 1:
		return s, errors.New("epoch, consumed, world, batch_size or before is out of its bounds")
	case s.Digest != nil && !isDigest(*s.Digest):
		return s, errors.New("order_digest is not a SHA-256 in hex")
	}
	if s.Digest != nil {
		*s.Digest = strings.ToLower(*s.Digest) // as that of an argument
	}
	if s.Seed != nil {
		if _, isInt := new(big.Int).SetString(s.Seed.String(), 10); !isInt || len(*s.Seed) > 80 {
			return s, errors.New("seed is not an integer")
		}
	}
	return s, nil
}
