// Command spark-operator is the Kubeflow Spark operator: its controller and its webhook, as the operator's chart starts them.
package main

import (
	"fmt"
	"os"

	"github.com/kubeflow/spark-operator/v2/cmd/operator/controller"
	"github.com/kubeflow/spark-operator/v2/cmd/operator/version"
	"github.com/kubeflow/spark-operator/v2/cmd/operator/webhook"
	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{Use: "spark-operator", SilenceUsage: true}
	root.AddCommand(controller.NewCommand(), webhook.NewCommand(), version.NewCommand())
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "spark-operator:", err)
		os.Exit(1)
	}
}
