package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// value says whether an option takes one.
type value int

const (
	none value = iota
	optional
	needed
)

// program is what `kelix` tells of itself: the options of the commands that the chart uses.
type program map[string]map[string]value

// The commands that the chart starts.
var commandsUsed = []string{"serve", "stat", "table list"}

// A line that an option begins: behind its name stands its value, its description two spaces on, or nothing.
// A description may be broken so that a line of it begins with the name of an option, too.
var optionLine = regexp.MustCompile(`(?m)^\s+(?:-\w, )?(--[a-z][a-z-]*)(?: (\[?<)|  |$)`)

func askProgram(path string) (program, error) {
	known := program{}
	for _, command := range commandsUsed {
		help, err := exec.Command(path, append(strings.Fields(command), "--help")...).Output()
		if err != nil {
			return nil, fmt.Errorf("%s %s --help: %w", path, command, err)
		}
		known[command] = map[string]value{}
		for _, found := range optionLine.FindAllStringSubmatch(string(help), -1) {
			known[command][found[1]] = map[string]value{"": none, "[<": optional, "<": needed}[found[2]]
		}
	}
	return known, nil
}

// read takes the words of a command apart, into its name and its options with their values.
func (known program) read(words []string) (command string, options map[string]string, err error) {
	all := map[string]value{}
	for _, of := range known {
		for option, takes := range of {
			all[option] = takes
		}
	}
	options = map[string]string{}
	var plain []string
	for i := 0; i < len(words); i++ {
		word := words[i]
		if !strings.HasPrefix(word, "--") {
			plain = append(plain, word)
			continue
		}
		takes, is := all[word]
		if !is {
			return "", nil, fmt.Errorf("kelix has no %s", word)
		}
		follows := i+1 < len(words) && !strings.HasPrefix(words[i+1], "--")
		if takes == needed && !follows {
			return "", nil, fmt.Errorf("%s has no value", word)
		}
		options[word] = ""
		if takes != none && follows {
			i++
			options[word] = words[i]
		}
	}
	command = strings.Join(plain, " ")
	of, is := known[command]
	if !is {
		return "", nil, fmt.Errorf("the chart is not known to use `kelix %s`", command)
	}
	for option := range options {
		if _, is := of[option]; !is {
			return "", nil, fmt.Errorf("kelix %s has no %s", command, option)
		}
	}
	return command, options, nil
}
