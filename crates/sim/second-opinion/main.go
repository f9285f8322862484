// Command second-opinion asks porcupine whether histories of the simulator, and of
// tests of clusters, are linearizable. It reads the files whose format crates/sim/src/history/lines.rs
// describes, and prints for each what `kelix-sim --check` prints, so that the
// two can be compared:
//
//	FILE N operations N keys linearizable|not|undecided
//
// It shares nothing with our own checker, and nothing of its cleverness either:
// its model of a key is a register in twenty lines, and an operation of unknown
// outcome is one that never returned. That covers the case that it never took
// effect: it can always do so after everything else, when nobody sees it. Only
// what would leave too much open at once is cut short first, where that changes
// nothing: see lighten.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// An operation as its line has it. What may be null is a pointer.
type operation struct {
	Client   int     `json:"client"`
	Key      uint64  `json:"key"`
	Call     int64   `json:"call"`
	Return   *int64  `json:"return"`
	Op       string  `json:"op"`
	Found    *uint64 `json:"found"`
	Value    *uint64 `json:"value"`
	Expected *uint64 `json:"expected"`
	WasThere *bool   `json:"was_there"`
	Outcome  *string `json:"outcome"`
}

// What stands under a key. The zero register is an absent key.
type register struct {
	present bool
	value   uint64
}

// The register that holds this value, or none.
func holding(value *uint64) register {
	if value == nil {
		return register{}
	}
	return register{true, *value}
}

// Whether an operation can take effect on a register and get the answer it got,
// and what it leaves.
func step(before register, did *operation) (bool, register) {
	known := did.Return != nil
	switch did.Op {
	case "get":
		return before == holding(did.Found), before
	case "put":
		return true, holding(did.Value)
	case "delete":
		return !known || before.present == *did.WasThere, register{}
	}
	matches := before == holding(did.Expected)
	after := before
	if matches {
		after = holding(did.Value)
	}
	switch {
	case !known:
		return true, after
	case *did.Outcome == "done":
		return matches, after
	default:
		return !matches && before == holding(did.Found), after
	}
}

// Whether the model above can do with the operation.
func (did *operation) problem() string {
	known := did.Return != nil
	switch {
	case known && *did.Return < did.Call:
		return "it returned before it was called"
	case did.Op == "get" && !known:
		return "a get has no outcome"
	case did.Op == "put" && did.Value == nil:
		return "a put writes nothing"
	case did.Op == "delete" && known != (did.WasThere != nil),
		did.Op == "cas" && known != (did.Outcome != nil):
		return "an outcome without a return, or the reverse"
	case did.Op != "get" && did.Op != "put" && did.Op != "delete" && did.Op != "cas":
		return fmt.Sprintf("no operation is called %q", did.Op)
	}
	return ""
}

var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		keys := make(map[uint64][]porcupine.Operation)
		for _, one := range history {
			key := one.Input.(*operation).Key
			keys[key] = append(keys[key], one)
		}
		var partitions [][]porcupine.Operation
		for _, partition := range keys {
			partitions = append(partitions, lighten(partition))
		}
		return partitions
	},
	Init: func() interface{} { return register{} },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		return step(state.(register), input.(*operation))
	},
	Hash: func(state interface{}) uint64 { return state.(register).value * 0x9e3779b97f4a7c15 },
}

// The value that an operation certainly wrote or saw, once it returned.
func (did *operation) showed() *uint64 {
	switch {
	case did.Return == nil:
		return nil
	case did.Op == "get":
		return did.Found
	case did.Op == "cas" && *did.Outcome != "done":
		return did.Found
	}
	return did.Value
}

// Whether an operation certainly left something else than it found, or absence.
func (did *operation) wrote() bool {
	return did.Return != nil && (did.Op == "put" || did.Op == "delete" || did.Op == "cas" && *did.Outcome == "done")
}

// Leaves out what says nothing among the operations on one key, and bounds the
// deletes of a certain value whose outcome is unknown. A value is written once. Where somebody has shown it
// by some time, a write that was called later follows its put, so when that
// write has returned the value is gone for good, and the delete can do nothing
// from then on. It may take effect until then, or never, which is the same as
// right after that write: nothing is lost if it returned then. One that was
// called later still is left out.
func lighten(key []porcupine.Operation) []porcupine.Operation {
	shown := make(map[uint64]int64)
	written := make(map[uint64]int)
	for _, one := range key {
		did := one.Input.(*operation)
		if value := did.showed(); value != nil {
			if before, known := shown[*value]; !known || one.Return < before {
				shown[*value] = one.Return
			}
		}
		if did.Value != nil && did.Op != "get" {
			written[*did.Value]++
		}
	}
	// Gets that were called and returned together and found the same say it once.
	type get struct {
		call, returned int64
		found          register
	}
	gets := make(map[get]bool)
	var lighter []porcupine.Operation
	for _, one := range key {
		did := one.Input.(*operation)
		if did.Op == "get" {
			same := get{one.Call, one.Return, holding(did.Found)}
			if gets[same] {
				continue
			}
			gets[same] = true
		}
		if did.Op == "cas" && did.Return == nil && did.Expected != nil && did.Value == nil && written[*did.Expected] == 1 {
			if since, known := shown[*did.Expected]; known {
				for _, other := range key {
					write := other.Input.(*operation)
					if other.Call > since && write.wrote() && other.Return < one.Return {
						one.Return = other.Return
					}
				}
			}
		}
		if one.Return >= one.Call {
			lighter = append(lighter, one)
		}
	}
	return lighter
}

// The history of a file, and how many keys it has.
func read(file string) (history []porcupine.Operation, keys int, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, 0, err
	}
	seen := make(map[uint64]bool)
	lines := bufio.NewScanner(bytes.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		did := new(operation)
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(did); err != nil {
			return nil, 0, fmt.Errorf("%s: line %d: %w", file, number, err)
		}
		if _, err := decoder.Token(); err != io.EOF {
			return nil, 0, fmt.Errorf("%s: line %d: more than one object", file, number)
		}
		if problem := did.problem(); problem != "" {
			return nil, 0, fmt.Errorf("%s: line %d: %s", file, number, problem)
		}
		returned := int64(math.MaxInt64)
		if did.Return != nil {
			returned = *did.Return
		}
		seen[did.Key] = true
		history = append(history, porcupine.Operation{
			ClientId: did.Client, Input: did, Call: did.Call, Return: returned,
		})
	}
	return history, len(seen), lines.Err()
}

func main() {
	timeout := flag.Duration("timeout", 2*time.Second, "how long a file may take before it is undecided")
	flag.Parse()
	for _, file := range flag.Args() {
		history, keys, err := read(file)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		word := "undecided"
		switch porcupine.CheckOperationsTimeout(model, history, *timeout) {
		case porcupine.Ok:
			word = "linearizable"
		case porcupine.Illegal:
			word = "not"
		}
		fmt.Printf("%s %d operations %d keys %s\n", file, len(history), keys, word)
	}
}
