// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

package main

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
)

const schema = "siteseer-manifest/1"

// manifest is that of "siteseer compile", as far as it is needed to attach.
type manifest struct {
	BuildID string `json:"build_id"`
	Object  struct {
		CRC32 string `json:"crc32"`
	} `json:"object"`
	Attachments []attachment `json:"attachments"`
	LeftOut     []leftOut    `json:"left_out"`
}

// attachment is a program, and a place to attach it to.
type attachment struct {
	Program   string `json:"program"`
	Mechanism string `json:"mechanism"`
	Symbol    string `json:"symbol"`
	Offset    uint64 `json:"offset"`
	Cookie    string `json:"cookie"`
}

// leftOut is a site that the object does not reach.
type leftOut struct {
	Function     string `json:"function"`
	Holder       string `json:"holder"`
	HolderOffset uint64 `json:"holder_offset"`
	Why          string `json:"why"`
	// Its code never runs again.
	Dead bool `json:"dead"`
}

// cookie returns what the link's cookie has to be.
func (a *attachment) cookie() (uint64, error) {
	return strconv.ParseUint(a.Cookie, 0, 64)
}

// readManifest reads a manifest, and checks what has to be checked before anything is attached by it: its version, that
// the object is the one that it describes, and that the kernel is the one that both are for.
func readManifest(path string, object []byte) (*manifest, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	// The version first: of another one, nothing else may be understood.
	var version struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if version.Schema != schema {
		return nil, fmt.Errorf("%s: its version is %q, and this program knows %q", path, version.Schema, schema)
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if checksum := fmt.Sprintf("0x%08x", crc32.ChecksumIEEE(object)); checksum != m.Object.CRC32 {
		return nil, fmt.Errorf("%s: it is about another object: compile it again", path)
	}
	running, err := runningBuildID()
	if err != nil {
		return nil, err
	}
	if running != m.BuildID {
		return nil, fmt.Errorf("%s: it is for the kernel with build id %s, and %s is running", path, m.BuildID, running)
	}
	return &m, nil
}

// runningBuildID returns the build id of the running kernel: a note of type 3 of the owner "GNU".
func runningBuildID() (string, error) {
	const headerSize = 12
	notes, err := os.ReadFile("/sys/kernel/notes")
	if err != nil {
		return "", err
	}
	align := func(size int) int { return (size + 3) &^ 3 }
	for len(notes) >= headerSize {
		word := func(at int) int { return int(binary.NativeEndian.Uint32(notes[at:])) }
		name, description, kind := word(0), word(4), word(8)
		start := headerSize + align(name)
		end := start + align(description)
		if end > len(notes) {
			break
		}
		if kind == 3 && string(notes[headerSize:headerSize+name]) == "GNU\x00" {
			return hex.EncodeToString(notes[start : start+description]), nil
		}
		notes = notes[end:]
	}
	return "", errors.New("/sys/kernel/notes has no build id")
}
