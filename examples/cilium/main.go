// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

// opensnoop-cilium prints each open(2), openat(2) and creat(2).
//
// The BPF program is that of examples/opensnoop, compiled by "siteseer compile". cilium/ebpf loads the object as any
// other. What is of siteseer is the loop over the manifest's attachments: a program, a symbol, a distance and a cookie each.
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
)

// opened is struct opened of opensnoop.h.
type opened struct {
	PID   uint32
	Flags uint32
	Comm  [16]byte
	Path  [256]byte
}

// attach attaches a program to a place.
func attach(collection *ebpf.Collection, a *attachment) (link.Link, error) {
	program := collection.Programs[a.Program]
	if program == nil {
		return nil, fmt.Errorf("the object has no program %s", a.Program)
	}
	cookie, err := a.cookie()
	if err != nil {
		return nil, err
	}
	switch a.Mechanism {
	case "kprobe":
		return link.Kprobe(a.Symbol, program, &link.KprobeOptions{Offset: a.Offset, Cookie: cookie})
	case "kretprobe":
		return link.Kretprobe(a.Symbol, program, &link.KprobeOptions{Cookie: cookie})
	case "fentry", "fexit":
		// The object says which function, and at which end.
		return link.AttachTracing(link.TracingOptions{Program: program, Cookie: cookie})
	default:
		return nil, fmt.Errorf("%s is to be attached by %s, which this program does not do", a.Program, a.Mechanism)
	}
}

// text is what a buffer has before the first zero.
func text(buffer []byte) string {
	before, _, _ := bytes.Cut(buffer, []byte{0})
	return string(before)
}

func run(objectPath, manifestPath string, pid uint32) error {
	object, err := os.ReadFile(objectPath)
	if err != nil {
		return err
	}
	m, err := readManifest(manifestPath, object)
	if err != nil {
		return err
	}
	for _, site := range m.LeftOut {
		if !site.Dead {
			fmt.Fprintf(os.Stderr, "opensnoop-cilium: calls of %s at %s+%#x are not seen: %s\n",
				site.Function, site.Holder, site.HolderOffset, site.Why)
		}
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return err
	}
	if err := spec.Variables["only_pid"].Set(pid); err != nil {
		return err
	}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		return err
	}
	defer collection.Close()
	for i := range m.Attachments {
		a := &m.Attachments[i]
		attached, err := attach(collection, a)
		if err != nil {
			return fmt.Errorf("%s+%#x: %w", a.Symbol, a.Offset, err)
		}
		defer attached.Close()
	}
	reader, err := ringbuf.NewReader(collection.Maps["opens"])
	if err != nil {
		return err
	}
	defer reader.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-stop
		// What came in before is read still.
		reader.Flush()
	}()
	fmt.Printf("%-8s %-16s %-8s PATH\n", "PID", "COMM", "FLAGS")
	for {
		record, err := reader.Read()
		if errors.Is(err, ringbuf.ErrFlushed) {
			break
		}
		if err != nil {
			return err
		}
		var event opened
		if _, err := binary.Decode(record.RawSample, binary.NativeEndian, &event); err != nil {
			return err
		}
		fmt.Printf("%-8d %-16s %08o %s\n", event.PID, text(event.Comm[:]), event.Flags, text(event.Path[:]))
	}
	return lost(collection)
}

// lost says how many calls the buffer had no room for, and of how many the arguments could not be read.
func lost(collection *ebpf.Collection) error {
	var sum uint64
	if err := collection.Variables["lost"].Get(&sum); err != nil {
		return err
	}
	if faults := collection.Maps["siteseer_faults"]; faults != nil {
		var each []uint64
		if err := faults.Lookup(uint32(0), &each); err != nil {
			return err
		}
		for _, count := range each {
			sum += count
		}
	}
	if sum > 0 {
		fmt.Fprintf(os.Stderr, "opensnoop-cilium: %d calls lost\n", sum)
	}
	return nil
}

func main() {
	pid := flag.Uint("p", 0, "watch only this process")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: opensnoop-cilium [-p PID] OBJECT MANIFEST")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), flag.Arg(1), uint32(*pid)); err != nil {
		fmt.Fprintln(os.Stderr, "opensnoop-cilium:", err)
		os.Exit(1)
	}
}
