"""Measure one part of ``gpu_session.sh``, or print the figures of all."""

from snnet_mm.utils import ToolParser, check, run_command


def main() -> None:
    parser = ToolParser(description=__doc__)
    parser.add_argument('part', help='a part of gpu_session.sh, or report')
    args = parser.parse_args()

    import gpu_parts

    gpu_parts.OUT.mkdir(parents=True, exist_ok=True)
    if args.part == 'report':
        gpu_parts.report()
        return
    check(args.part in gpu_parts.PARTS, 'PART', args.part, [*gpu_parts.PARTS, 'report'])
    gpu_parts.run_part(args.part)


if __name__ == '__main__':
    run_command(main)
