// Reads Kubernetes objects from standard input, one JSON document per line, and writes for each of them, in a line, what
// two tools make of it by the libraries that they use: the status by kstatus (Flux), and what the Lua script returns
// whose file is the argument, run by gopher-lua (Argo CD).
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

const longestLine = 1 << 20 // bytes

type seen struct {
	Kstatus string            `json:"kstatus"`
	Script  map[string]string `json:"script"`
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(path string) error {
	script, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestLine)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(lines.Bytes()); err != nil {
			return err
		}
		result, err := status.Compute(object)
		if err != nil {
			return err
		}
		returned, err := health(object.Object, string(script))
		if err != nil {
			return err
		}
		if err := out.Encode(seen{result.Status.String(), returned}); err != nil {
			return err
		}
	}
	return lines.Err()
}

// health runs the script as Argo CD does: with the object as `obj`, and of the libraries only the basic one, `package`
// and `table`.
func health(object map[string]any, script string) (map[string]string, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
	} {
		call := lua.P{Fn: state.NewFunction(open), Protect: true}
		if err := state.CallByParam(call, lua.LString(name)); err != nil {
			return nil, err
		}
	}
	state.SetGlobal("obj", value(state, object))
	if err := state.DoString(script); err != nil {
		return nil, err
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return nil, fmt.Errorf("the script returned a %s", state.Get(-1).Type())
	}
	returned := map[string]string{}
	table.ForEach(func(key, it lua.LValue) { returned[key.String()] = it.String() })
	return returned, nil
}

// value is a part of an object in Lua. Whole numbers stay numbers: the script compares generations.
func value(state *lua.LState, part any) lua.LValue {
	switch it := part.(type) {
	case bool:
		return lua.LBool(it)
	case string:
		return lua.LString(it)
	case int64:
		return lua.LNumber(it)
	case float64:
		return lua.LNumber(it)
	case []any:
		table := state.NewTable()
		for _, each := range it {
			table.Append(value(state, each))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for key, each := range it {
			table.RawSetString(key, value(state, each))
		}
		return table
	default:
		return lua.LNil
	}
}
