// Command kubernetes holds all Kubernetes programs of the node and the volume provisioner, so that what they share is
// compiled and linked once. The first argument, or the name it is started by, chooses the program.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // time zones of CronJobs: the node may have none installed

	"github.com/spf13/cobra"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

const kubectlName = "kubectl"

// programs makes the command of each program; it is made only when chosen, for making one registers global flags.
var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"volume-provisioner":      newProvisionerCommand,
	kubectlName:               kubectl.NewDefaultKubectlCommand,
}

// choose returns the program's name and drops it from os.Args if it was an argument.
func choose() string {
	name := filepath.Base(os.Args[0])
	if programs[name] == nil && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	return name
}

func main() {
	name := choose()
	newCommand := programs[name]
	switch {
	case newCommand == nil:
		names := make([]string, 0, len(programs))
		for known := range programs {
			names = append(names, known)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "usage: kubernetes PROGRAM [ARGUMENT...], where PROGRAM is one of %s\n", strings.Join(names, ", "))
		os.Exit(2)
	case name == kubectlName:
		_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)) // as kubectl's own main: a bad -v is reported by the flag parser
		if err := cli.RunNoErrOutput(newCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	default:
		os.Exit(cli.Run(newCommand()))
	}
}
